"""References to files across capabilities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.refs import FileRef

NAMES = st.text(min_size=1, max_size=30)
REFS = st.builds(FileRef, st.sampled_from(["root", "store", "corpus"]), NAMES, st.text(max_size=60))


@pytest.mark.parametrize(
    ("ref", "written"),
    [
        (FileRef("root", "workspace", "a.py"), "root://workspace/a.py"),
        (FileRef("root", "workspace", "src/a b.py"), "root://workspace/src/a b.py"),
        (FileRef("root", "workspace", ""), "root://workspace/"),
        (FileRef("store", "my/project", "100%.md"), "store://my%2Fproject/100%25.md"),
        (FileRef("root", "w", "a#b?c"), "root://w/a%23b%3Fc"),
        (FileRef("root", "w", "caf\udce9"), "root://w/caf%E9"),
    ],
)
def test_a_reference_is_written_as_an_address(ref: FileRef, written: str) -> None:
    assert str(ref) == written


@given(REFS)
def test_a_reference_has_everything_about_the_file(ref: FileRef) -> None:
    assert FileRef.parse(str(ref)) == (ref if ref.path else None)


@pytest.mark.parametrize("text", ["", "a.md", "root:/w/a", "root://w", "root://w/", "://w/a", "/etc/passwd"])
def test_other_text_is_no_reference(text: str) -> None:
    assert FileRef.parse(text) is None


def test_the_name_of_a_file_is_the_end_of_its_path() -> None:
    assert FileRef("root", "w", "src/a.py").name == "a.py"
    assert FileRef("root", "w", "src/").name == "src"
