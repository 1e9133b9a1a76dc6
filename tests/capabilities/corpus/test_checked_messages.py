"""A message of a worker is either a valid outcome for the requested file, or refused."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.corpus.errors import FileTooLarge
from armarium.capabilities.corpus.ingest.budgets import TextBudget
from armarium.capabilities.corpus.ingest.checked_messages import MOST_OUTCOMES, ExpectedOutcomes
from armarium.capabilities.corpus.ingest.messages import (
    LENGTH,
    InvalidMessage,
    encode_frame,
    encode_outcome,
    read_frame,
)
from armarium.capabilities.corpus.storage.prepared import (
    Finished,
    Outcome,
    Prepared,
    PreparedChunk,
    Refused,
    Representation,
    Unchanged,
    Vanished,
    chunk_hash,
)
from armarium.foundation.events import ScannerFinding

HASH = "ab" * 32
PATH = "papers/box.zip"


def expected(size_bytes: int = 1000) -> ExpectedOutcomes:
    return ExpectedOutcomes(PATH, size_bytes, 7, TextBudget(size_bytes, 2500), most_lines=20_000_001)


def chunk(text: str, start: int = 1, end: int = 1, *, hashed: bool = True) -> PreparedChunk:
    digest = chunk_hash("text", "above", text) if hashed else b""
    return PreparedChunk(text, "above", digest, "text", "lines", start, end)


def document(*, hashed: bool = True) -> Prepared:
    chunks = [chunk("One.", hashed=hashed), chunk("Two \\u0000 ünd 😀", 2, 3, hashed=hashed)]
    representation = Representation("raw_text", HASH, chunks, {"format": "docx", "title": "A"}, "One.\nTwo")
    return Prepared(
        f"{PATH}!/a/b.docx",
        "word",
        12,
        34,
        HASH,
        "ok",
        None,
        PATH,
        [representation],
        [ScannerFinding("jwt", 3, "ab12")],
    )


def told(outcome: Outcome) -> Outcome:
    return expected().outcome(encode_outcome(outcome)[LENGTH.size :])


@pytest.mark.parametrize(
    "outcome",
    [
        document(),
        Prepared(PATH, "archive", 1000, 7, HASH, "ok"),
        Prepared(PATH, "pdf", 1000, 7, "", "error", "EXTRACT_FAILED: the pdf document cannot be read"),
        Unchanged(PATH, 1000, 7),
        Vanished(PATH),
        Refused(f"{PATH}!/..\\x00", "PATH_OUTSIDE_ROOT", "the name leads out of the archive"),
        Finished(PATH),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_what_an_honest_worker_sends_arrives(outcome: Outcome) -> None:
    received = told(outcome)
    if isinstance(received, Prepared):
        assert received.representations == list(getattr(outcome, "representations", ()))
    assert repr(received).replace("[]", "()") == repr(outcome).replace("[]", "()")


def test_the_hash_that_shares_vectors_is_computed_by_the_server() -> None:
    received = told(document(hashed=False))
    assert isinstance(received, Prepared)
    assert received == document()


def test_text_that_is_not_unicode_is_an_error_of_that_document() -> None:
    broken = Prepared(
        PATH,
        "text",
        1000,
        7,
        HASH,
        "ok",
        representations=[
            Representation("raw_text", HASH, [chunk("\ud800", hashed=False)], {"format": "text", "title": None})
        ],
    )
    received = told(broken)
    assert isinstance(received, Prepared)
    assert received.error == "EXTRACT_FAILED: the text of the document is not Unicode"


def paths_into(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where something can be put in the place of something else."""
    found = [path]
    if isinstance(value, list):
        for index, each in enumerate(value):
            found += paths_into(each, (*path, index))
    return found


HONEST = [orjson.loads(encode_outcome(each)[LENGTH.size :]) for each in (document(), Refused(f"{PATH}!/x", "A", "b"))]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ["ok", "error", "prepared", "finished", "lines", "page", "text", "code", "../x", "a\0b", "/etc", HASH]
    ),
    st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=4), max_leaves=6),
    st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**63), max_size=2),
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """An honest message in which some values are others, are gone or are there twice."""
    message = copy.deepcopy(draw(st.sampled_from(HONEST)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths_into(message)))
        if not path:
            return draw(JUNK)
        holder = message
        for index in path[:-1]:
            holder = holder[index]
        match draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "replace":
                holder[path[-1]] = draw(JUNK)
            case "remove":
                del holder[path[-1]]
            case _:
                holder.append(holder[path[-1]])
    return message


def assert_harmless(outcome: Outcome) -> None:
    """What the rest of the server relies on."""
    rel_path = outcome.shown_path if isinstance(outcome, Refused) else outcome.rel_path
    assert rel_path == PATH or rel_path.startswith(f"{PATH}!/")
    assert "\0" not in rel_path
    assert not {"..", "."} & set(rel_path.split("/")) or isinstance(outcome, Refused)
    if not isinstance(outcome, Prepared):
        return
    assert 0 <= outcome.size_bytes < 2**63
    assert 0 <= outcome.mtime_ns < 2**63
    assert outcome.status in ("ok", "skipped", "error")
    assert (outcome.error is None) == (outcome.status == "ok")
    for representation in outcome.representations:
        assert set(representation.meta) <= {"format", "title", "page_starts"}
        (representation.content or "").encode()
        for piece in representation.chunks:
            assert "\0" not in piece.text + piece.context
            (piece.text + piece.context).encode()
            assert piece.text_hash == chunk_hash(piece.index_kind, piece.context, piece.text)
            assert 0 <= piece.start <= piece.end <= 2**62
            assert piece.index_kind in ("text", "code")
            assert piece.span_kind in ("lines", "page", "time")


@given(mutated())
def test_a_changed_message_is_a_harmless_outcome_or_refused(message: Any) -> None:
    try:
        outcome = expected().outcome(orjson.dumps(message))
    except InvalidMessage:
        return
    assert_harmless(outcome)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_harmless(body: bytes) -> None:
    try:
        outcome = expected().outcome(body)
    except InvalidMessage:
        return
    assert_harmless(outcome)


@given(st.binary(max_size=40))
def test_a_frame_longer_than_allowed_is_never_read(data: bytes) -> None:
    position = 0

    def read(size: int) -> bytes:
        nonlocal position
        assert size <= 16
        part = data[position : position + size]
        position += size
        if len(part) < size:
            raise EOFError
        return part

    try:
        read_frame(read, 16)
    except (InvalidMessage, EOFError):
        return


def test_one_file_cannot_answer_for_ever() -> None:
    about = expected()
    body = encode_frame(["unchanged"])[LENGTH.size :]
    for _ in range(MOST_OUTCOMES):
        about.outcome(body)
    with pytest.raises(InvalidMessage):
        about.outcome(body)


def test_a_member_comes_once() -> None:
    about = expected()
    body = encode_outcome(document())[LENGTH.size :]
    about.outcome(body)
    with pytest.raises(InvalidMessage):
        about.outcome(body)


def test_nesting_and_long_numbers_are_refused_without_an_error_of_another_kind() -> None:
    for body in (
        b"[" * 1000 + b"]" * 1000,
        b"[" * 100_000,
        b'["prepared",' + b"9" * 5000 + b"]",
        b'["' + b"\\u0000" * 9 + b'"]',
    ):
        with pytest.raises(InvalidMessage):
            expected().outcome(body)


def test_a_small_file_becomes_no_more_than_its_budget() -> None:
    growth = TextBudget(1000, 2500)
    text = "x" * 2500
    page = Representation("raw_text", HASH, [chunk(text, hashed=False)] * 1000, {"format": "text", "title": None})
    growth.spend(Prepared(PATH, "text", 1, 1, HASH, "ok", representations=[page]))
    with pytest.raises(FileTooLarge):
        growth.spend(Prepared(PATH, "text", 1, 1, HASH, "ok", representations=[page]))


@pytest.mark.parametrize("size_bytes", [0, 1000, 20_000_000, 1_000_000_000])
def test_a_plain_file_of_any_size_fits_its_budget(size_bytes: int) -> None:
    assert TextBudget(size_bytes, 2500).max_chars >= 1.2 * size_bytes
