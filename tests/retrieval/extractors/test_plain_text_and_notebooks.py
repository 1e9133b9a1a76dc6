"""Text formats keep the lines of their file; notebooks become Markdown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.retrieval.chunks import ExtractedText
from armarium.retrieval.document_types import classify
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.document import extract_document


def extracted(name: str, data: bytes) -> ExtractedText:
    return extract_document(classify(name, data), data)


@pytest.mark.parametrize(
    ("name", "structure", "language"),
    [
        ("a.py", "code", "python"),
        ("a.lua", "code", "lua"),
        ("a.md", "markdown", None),
        ("a.txt", "plain", None),
        ("a.json", "plain", None),
        ("a.yaml", "plain", None),
        ("a.csv", "rows", None),
        ("a.tsv", "rows", None),
        ("a.jsonl", "rows", None),
    ],
)
def test_the_format_says_how_a_text_is_cut(name: str, structure: str, language: str | None) -> None:
    result = extracted(name, b"one\r\ntwo\n")
    assert (result.text, result.structure, result.language) == ("one\ntwo\n", structure, language)
    assert result.is_file
    assert result.page_starts is None
    assert result.source_lines is None


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\x1b\ufeff"), min_size=1), max_size=20),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_line_for_line_the_text_is_the_file(lines: list[str], line_end: str) -> None:
    result = extract_document(classify("a.txt", b""), line_end.join(lines).encode())
    assert result.text == "\n".join(lines)


def notebook(*cells: dict[str, object], **metadata: object) -> bytes:
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}).encode()


def test_a_notebook_keeps_its_prose_fences_its_code_and_shows_what_was_printed() -> None:
    data = notebook(
        {"cell_type": "markdown", "source": ["# Title\n", "Some prose."]},
        {
            "cell_type": "code",
            "source": "print(1)\n",
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {"output_type": "execute_result", "data": {"text/plain": "42", "image/png": "aaaa"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "bad", "traceback": ["long"]},
            ],
        },
        language_info={"name": "python"},
    )
    result = extracted("a.ipynb", data)
    assert result.text == ("# Title\nSome prose.\n\n```python\nprint(1)\n```\n\n```\n1\n42\nValueError: bad\n```\n")
    assert result.structure == "markdown"
    assert not result.is_file


def test_long_outputs_of_a_notebook_are_cut_and_fences_in_code_do_not_end_it() -> None:
    printed = "".join(f"row {number}\n" for number in range(1000))
    data = notebook(
        {"cell_type": "code", "source": "s = '''```'''", "outputs": [{"output_type": "stream", "text": printed}]}
    )
    text = extracted("a.ipynb", data).text
    assert text.startswith("````\ns = '''```'''\n````\n")
    assert "row 19\n" in text
    assert "row 20" not in text


def test_a_notebook_of_the_old_format_is_read() -> None:
    cells = [{"cell_type": "heading", "level": 2, "source": "Old"}, {"cell_type": "code", "input": "x = 1"}]
    data = json.dumps({"worksheets": [{"cells": cells}]}).encode()
    assert extracted("a.ipynb", data).text == "## Old\n\n```\nx = 1\n```\n"


@pytest.mark.parametrize("data", [b"not json", b"[1, 2]", b"[" * 100_000, b'{"cells": ', b""])
def test_what_is_no_notebook_fails_and_says_so(data: bytes) -> None:
    with pytest.raises(ExtractFailed) as failed:
        extract_document(classify("a.ipynb", b""), data)
    assert failed.value.code == "EXTRACT_FAILED"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cells", "cell_type", "source", "outputs", "text", "data", "metadata", "text/plain"]),
            inner,
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["cells", "worksheets", "metadata"]), JSON))
def test_a_notebook_may_hold_anything_anywhere(content: dict[str, object]) -> None:
    assert extract_document(classify("a.ipynb", b""), json.dumps(content).encode()).structure == "markdown"


@pytest.mark.parametrize("name", ["a.png", "a.zip", "a.mp3"])
def test_a_file_without_text_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(ExtractFailed):
        extract_document(classify(name, b""), b"")
