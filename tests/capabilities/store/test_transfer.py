"""Archives: what goes out comes in again, and nothing else does."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from armarium.capabilities.store.commands.archives import read_archive
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import InvalidPath, NotFound
from armarium.capabilities.store.settings import StoreSettings
from armarium.capabilities.store.transfer import ArchiveUnusable, Import, Imported, Skipped, export_files
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Call
from support.store_calls import Files

DEADLINE_S = 20.0


@pytest.fixture
def mine(database: StoreDatabase, tenant: str) -> Files:
    return Files(database, tenant)


async def exported(files: Files, project: str = "p") -> bytes:
    out = io.BytesIO()
    await export_files(files.database, files.tenant, project, out)
    return out.getvalue()


async def imported(
    files: Files, archive: bytes, *, max_file_bytes: int = 1000, **options: Any
) -> tuple[Imported, list[Skipped]]:
    skipped: list[Skipped] = []
    importing = Import(
        Call(Principal("someone", (), files.tenant)),
        project=options.get("project"),
        overwrite=options.get("overwrite", False),
        max_file_bytes=max_file_bytes,
        on_skipped=skipped.append,
    )
    return await importing.run(io.BytesIO(archive), files.store, files.database), skipped


def tar(*members: tuple[str, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return made.getvalue()


def of_type(name: str, kind: bytes) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, "p/a.md"
    return header


def codes(skipped: Iterable[Skipped]) -> dict[str, str]:
    return {each.member: each.code for each in skipped}


async def test_what_is_exported_is_read_by_others_with_names_contents_and_times(mine: Files) -> None:
    long_path = "/" + "d" * 200 + "/" + "f" * 200
    await mine.put("/a.md", content="grüße\n")
    await mine.put(long_path, content="")
    with tarfile.open(fileobj=io.BytesIO(await exported(mine))) as archive:
        members = {member.name: member for member in archive.getmembers()}
        assert list(members) == ["p/a.md", f"p{long_path}"]
        first = archive.extractfile("p/a.md")
        assert first is not None
        assert first.read().decode() == "grüße\n"
    [row] = await mine.rows("SELECT updated_at FROM mcp_files WHERE path = '/a.md'")
    assert members["p/a.md"].mtime == int(row["updated_at"].timestamp())


async def test_an_archive_comes_in_again_whole_for_another_caller(database: StoreDatabase, mine: Files) -> None:
    await mine.put("/a.md", "/sub/b.md", content="x" * 700)
    await mine.put("/c.md", content="", project="q")
    other = Files(database, "ab" * 32)
    done, skipped = await imported(other, await exported(mine, "*"))
    assert (done.written, done.bytes, skipped) == (3, 1400, [])
    assert await other.text("/sub/b.md") == "x" * 700
    assert await other.text("/c.md", project="q") == ""
    assert other.mutations.count(("file_write", "ok")) == 3
    await other.ok("delete", path="/a.md")
    await other.ok("delete", path="/sub", recursive=True)
    await other.ok("delete", path="/c.md", project="q")


async def test_only_the_callers_own_files_are_exported(database: StoreDatabase, mine: Files) -> None:
    await Files(database, "cd" * 32).put("/secret.md")
    with pytest.raises(NotFound):
        await exported(mine, "*")
    with pytest.raises(NotFound):
        await exported(mine)
    with pytest.raises(InvalidPath):
        await exported(mine, "../x")


async def test_deleted_files_are_not_exported(mine: Files) -> None:
    await mine.put("/a.md", "/b.md")
    await mine.ok("delete", path="/a.md")
    with tarfile.open(fileobj=io.BytesIO(await exported(mine))) as archive:
        assert archive.getnames() == ["p/b.md"]


class HeldUp(io.BytesIO):
    """Takes the first part only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def writelines(self, lines: Iterable[Any], /) -> None:
        self.begun.set()
        assert self.let_go.wait(DEADLINE_S)
        super().writelines(lines)


async def test_an_export_shows_one_moment_whatever_happens_meanwhile(mine: Files) -> None:
    await mine.put("/b.md", "/c.md", content="before")
    out = HeldUp()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(export_files, mine.database, mine.tenant, "p", out)
        await anyio.to_thread.run_sync(out.begun.wait, DEADLINE_S)
        await mine.ok("rename", from_path="/c.md", to_path="/a.md")
        await mine.put("/b.md", content="after")
        out.let_go.set()
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        assert archive.getnames() == ["p/b.md", "p/c.md"]


class Broken(io.BytesIO):
    """A pipe whose reader is gone."""

    def writelines(self, lines: Iterable[Any], /) -> None:
        raise BrokenPipeError(32, "Broken pipe")


async def test_an_output_that_breaks_is_not_taken_for_the_database(mine: Files) -> None:
    await mine.put("/a.md")
    with pytest.raises(ArchiveUnusable):
        await export_files(mine.database, mine.tenant, "p", Broken())


async def test_running_an_import_again_writes_nothing_twice(mine: Files) -> None:
    archive = tar(("p/a.md", b"one"), ("p/b.md", b"two"))
    await imported(mine, archive)
    before = await mine.rows("SELECT path, version FROM mcp_files ORDER BY path")
    done, skipped = await imported(mine, archive, overwrite=True)
    assert (done.written, done.unchanged, skipped) == (0, 2, [])
    assert await mine.rows("SELECT path, version FROM mcp_files ORDER BY path") == before


async def test_other_content_stays_unless_it_may_be_replaced(mine: Files) -> None:
    await mine.put("/a.md", content="mine")
    archive = tar(("p/a.md", b"that"))
    done, skipped = await imported(mine, archive)
    assert (done.written, done.skipped, codes(skipped)) == (0, 1, {"p/a.md": "ALREADY_EXISTS"})
    assert await mine.text("/a.md") == "mine"
    done, skipped = await imported(mine, archive, overwrite=True)
    assert (done.written, skipped) == (1, [])
    assert await mine.text("/a.md") == "that"
    assert len((await mine.ok("history", path="/a.md"))["versions"]) == 2


async def test_all_files_can_be_put_into_one_project(mine: Files) -> None:
    await imported(mine, tar(("one/a.md", b"1"), ("./t w o/b.md", b"2")), project="q")
    assert await mine.paths(project="q") == ["/a.md", "/b.md"]


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
async def test_compressed_archives_come_in(mine: Files, mode: str) -> None:
    done, _ = await imported(mine, tar(("p/a.md", b"text"), mode=mode))
    assert done.written == 1


async def test_what_cannot_be_stored_is_skipped_with_its_reason_and_the_rest_comes_in(mine: Files) -> None:
    archive = tar(
        ("p/binary", b"\xff\xfe"),
        ("p/nul", b"a\x00b"),
        ("p/large", b"x" * 1001),
        ("p/with space", b""),
        ("p/a.md", b"kept"),
        ("p/a.md/below", b""),
        ("alone", b""),
        ("/etc/passwd", b""),
        ("../p/up", b""),
        ("p/../../up", b""),
        ("p/b//c", b""),
        ("not a project/a.md", b""),
        ("p/z.md", b"kept, too"),
    )
    done, skipped = await imported(mine, archive)
    assert codes(skipped) == {
        "p/binary": "INVALID_QUERY",
        "p/nul": "INVALID_QUERY",
        "p/large": "PAYLOAD_TOO_LARGE",
        "p/with space": "INVALID_PATH",
        "p/a.md/below": "NOT_DIRECTORY",
        "alone": "INVALID_PATH",
        "/etc/passwd": "INVALID_PATH",
        "../p/up": "INVALID_PATH",
        "p/../../up": "INVALID_PATH",
        "p/b//c": "INVALID_PATH",
        "not a project/a.md": "INVALID_PATH",
    }
    assert (done.written, done.skipped) == (2, len(skipped))
    assert await mine.paths() == ["/a.md", "/z.md"]


async def test_links_and_devices_are_skipped_and_directories_need_nothing(mine: Files) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            archive.addfile(of_type(f"p/{kind.decode()}", kind))
        archive.addfile(of_type("p/directory", tarfile.DIRTYPE))
    done, skipped = await imported(mine, made.getvalue())
    assert done.skipped == 4
    assert set(codes(skipped).values()) == {"INVALID_QUERY"}
    assert await mine.paths() == []


async def test_the_limits_of_a_project_hold(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 10})
    done, skipped = await imported(files, tar(("p/a.md", b"x" * 8), ("p/b.md", b"x" * 8), ("p/c.md", b"x" * 2)))
    assert (done.written, codes(skipped)) == (2, {"p/b.md": "QUOTA_EXCEEDED"})


async def test_an_archive_that_is_cut_off_anywhere_is_noticed(mine: Files) -> None:
    whole = tar(("p/a.md", b"x" * 600), ("p/b.md", b"y" * 10))
    ends_at = 5 * tarfile.BLOCKSIZE
    assert whole[ends_at:].strip(b"\x00") == b""
    for length in range(0, ends_at, 128):
        with pytest.raises(ArchiveUnusable):
            await imported(mine, whole[:length])
    done, skipped = await imported(mine, whole)
    assert (done.unchanged, skipped) == (2, [])


@pytest.mark.parametrize("damage", [b"no archive at all" * 100, b"", b"\x1f\x8b" + bytes(600)])
async def test_what_is_no_archive_is_refused(mine: Files, damage: bytes) -> None:
    with pytest.raises(ArchiveUnusable):
        await imported(mine, damage)


async def test_a_damaged_header_in_the_middle_is_noticed(mine: Files) -> None:
    whole = bytearray(tar(("p/a.md", b"x"), ("p/b.md", b"y")))
    whole[2 * tarfile.BLOCKSIZE] ^= 1
    with pytest.raises(ArchiveUnusable):
        await imported(mine, bytes(whole))
    assert await mine.paths() == ["/a.md"]


async def test_a_header_that_asks_for_much_memory_is_refused(mine: Files) -> None:
    header = tarfile.TarInfo("p/a.md")
    header.type, header.size = tarfile.XHDTYPE, 8 * 1024**3
    with pytest.raises(ArchiveUnusable):
        await imported(mine, header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))


async def test_a_file_of_any_allowed_size_comes_in_at_once_however_small_payloads_are(
    store_dsn: str, mine: Files, tmp_path: Path
) -> None:
    settings = StoreSettings(dsn=SecretStr(store_dsn), max_payload_bytes=10, max_file_bytes=500)
    archive = io.BytesIO(tar(("p/a.md", b"x" * 500), ("p/b.md", b"x" * 501)))
    skipped: list[Skipped] = []
    call = Call(Principal("someone", (), mine.tenant))
    importing = Import(call, None, False, settings.max_file_bytes, skipped.append)
    done = await read_archive(importing, archive, settings, tmp_path)
    assert (done.written, codes(skipped)) == (1, {"p/b.md": "PAYLOAD_TOO_LARGE"})
    assert (await export_files(mine.database, mine.tenant, "p", io.BytesIO()))["bytes"] == 500
