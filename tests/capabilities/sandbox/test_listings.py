"""Listing directories page by page, and file times."""

from __future__ import annotations

from pathlib import Path

import pytest

from armarium.capabilities.sandbox.reads.root_files import iso_time
from support.client import ToolClient
from support.trees import make_tree


@pytest.mark.parametrize("limit", [1, 3, 5, 10, 11])
async def test_a_folder_is_listed_page_by_page(client: ToolClient, workspace: Path, limit: int) -> None:
    names = [f"{number:02}.txt" for number in range(10)]
    make_tree(workspace, dict.fromkeys(names, ""))

    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await client.call("list_folder", root="workspace", path="", limit=limit, **cursor)
        pages.append([entry["name"] for entry in page["entries"]])
        assert page["total"] == 10
        assert page["count"] == len(page["entries"]) <= limit
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}

    assert [name for page in pages for name in page] == names
    assert len(pages) == -(-10 // limit)


async def test_pages_neither_repeat_nor_skip_when_entries_come_and_go(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, dict.fromkeys(["b", "c", "d", "e"], ""))

    first = await client.call("list_folder", root="workspace", path="", limit=2)
    (workspace / "a").touch()
    (workspace / "c").unlink()
    rest = await client.call("list_folder", root="workspace", path="", limit=9, cursor=first["next_cursor"])

    assert [entry["name"] for entry in first["entries"]] == ["b", "c"]
    assert [entry["name"] for entry in rest["entries"]] == ["d", "e"]


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1_000, "1969-12-31T23:59:59.999999Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00.000000Z"),
        (10**13 * 10**9, "9999-12-31T"),
        (-(10**13) * 10**9, "0001-01-01T"),
    ],
)
def test_any_time_a_file_system_stores_can_be_told(nanoseconds: int, expected: str) -> None:
    assert iso_time(nanoseconds).startswith(expected)
