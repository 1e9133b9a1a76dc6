"""References to files across capabilities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.refs import FileRef

NAMES = st.text(min_size=1, max_size=30)


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
    assert FileRef.parse(written) == ref


@given(st.sampled_from(["root", "store", "corpus"]), NAMES, st.text(max_size=60))
def test_a_reference_survives_being_written_and_read(scheme: str, space: str, path: str) -> None:
    ref = FileRef(scheme, space, path)
    assert FileRef.parse(str(ref)) == ref


@pytest.mark.parametrize(
    "text", ["", "a.py", "root:/workspace/a", "://w/a", "root:///a", "root://workspace", "root://"]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a file reference"):
        FileRef.parse(text)
