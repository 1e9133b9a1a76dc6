"""Parses the messages of a worker process and validates every type, size, name and number: a hostile file may control
it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, TypeVar, get_args

from armarium.capabilities.corpus.errors import FileTooLarge
from armarium.capabilities.corpus.files.discover import MEMBER_MARK, is_storable
from armarium.capabilities.corpus.ingest import messages as answers
from armarium.capabilities.corpus.ingest.budgets import TextBudget
from armarium.capabilities.corpus.ingest.messages import InvalidMessage, decode_frame
from armarium.capabilities.corpus.storage.prepared import (
    LONGEST_TITLE,
    Finished,
    Outcome,
    Prepared,
    PreparedChunk,
    Refused,
    Representation,
    Status,
    Unchanged,
    Vanished,
    chunk_hash,
)
from armarium.foundation.events import ScannerFinding
from armarium.retrieval.chunks import IndexKind, RepType
from armarium.retrieval.document_types import DocType
from armarium.retrieval.spans import SpanKind

Value = TypeVar("Value")

MOST_OUTCOMES = 25_000
"""The limit for one file: an archive has at most 10,000 members, reported once each, and some entries without a
path."""

_HASH = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{0,64}")
_ERROR = re.compile(r"[A-Z_]{1,40}: [^\n\r\0]{1,500}")
_CODE = re.compile(r"[A-Z_]{1,40}")
_LONGEST_NAME = 500
_LONGEST_PATH_BYTES = 3 * 4096
_LONGEST_SHOWN_PATH = 20_000
_MOST_SECRETS = 100
_LARGEST_NUMBER = 2**62
_FREE_FRAME_BYTES = 256_000_000
_ESCAPED_NUL = b"\\u0000"


@dataclass(slots=True)
class ExpectedOutcomes:
    """The outcomes that a worker may report for one file, checked one by one."""

    rel_path: str
    size_bytes: int
    mtime_ns: int
    budget: TextBudget
    most_lines: int
    """The largest line number. A file may grow between being opened and being read."""
    _outcomes: int = 0
    _members: set[str] = field(default_factory=set[str])

    @property
    def max_frame_bytes(self) -> int:
        """The size limit of one message, which contains a little more than two copies of the text."""
        return min(3 * self.budget.max_chars + 1_000_000, _FREE_FRAME_BYTES + 3 * self.size_bytes)

    def outcome(self, body: bytes) -> Outcome:
        """Parse one message. Raises `InvalidMessage` if it cannot be about this file."""
        self._outcomes += 1
        _require(self._outcomes <= MOST_OUTCOMES)
        message = decode_frame(body)
        if _ESCAPED_NUL in body:
            _require(not _holds_nul(message))
        _require(bool(message))
        kind, *fields = _list(message)
        if kind == answers.PREPARED and len(fields) == 7:
            return self._prepared(fields)
        if kind == answers.REFUSED:
            member, code, reason = _strings(fields, 3)
            _require(len(member) <= _LONGEST_SHOWN_PATH and _CODE.fullmatch(code) is not None)
            _require(is_storable(member) and 0 < len(reason) <= _LONGEST_NAME)
            return Refused(f"{self.rel_path}{MEMBER_MARK}{member}", code, reason)
        _require(not fields)
        match kind:
            case answers.UNCHANGED:
                return Unchanged(self.rel_path, self.size_bytes, self.mtime_ns)
            case answers.VANISHED:
                return Vanished(self.rel_path)
            case answers.FINISHED:
                return Finished(self.rel_path)
            case _:
                raise InvalidMessage

    def _prepared(self, fields: list[Any]) -> Prepared:
        member, doc_type, content_hash, status, error, representations, secrets = fields
        rel_path, size_bytes, mtime_ns, container = self.rel_path, self.size_bytes, self.mtime_ns, None
        if member is not None:
            path, size_bytes, mtime_ns = _list(member, 3)
            (path,) = _strings([path], 1)
            _require(len(path.encode()) <= _LONGEST_PATH_BYTES and is_storable(path))
            _require(not {"", ".", ".."}.intersection(path.split("/")) and path not in self._members)
            self._members.add(path)
            rel_path, container = f"{self.rel_path}{MEMBER_MARK}{path}", self.rel_path
            _require(_is_count(size_bytes) and _is_count(mtime_ns))
        _require(content_hash == "" or _fits(_HASH, content_hash))
        _require(error is None if status == "ok" else _fits(_ERROR, error))
        _require(status == "ok" or not representations)
        prepared = Prepared(
            rel_path,
            _one_of(get_args(DocType), doc_type),
            size_bytes,
            mtime_ns,
            content_hash,
            _one_of(get_args(Status), status),
            error,
            container,
            [_representation(each, self.most_lines) for each in _list(representations)],
            [_secret(each) for each in _list(secrets)],
        )
        _require(len({each.rep_type for each in prepared.representations}) == len(prepared.representations))
        _require(len(prepared.secrets) <= _MOST_SECRETS)
        try:
            self.budget.spend(prepared)
        except FileTooLarge as too_large:
            raise InvalidMessage from too_large
        return prepared


def _representation(fields: object, most_lines: int) -> Representation:
    rep_type, rep_hash, form, title, page_starts, content, columns = _list(fields, 7)
    _require(_fits(_HASH, rep_hash) and isinstance(form, str) and len(form) <= _LONGEST_NAME)
    _require(title is None or (isinstance(title, str) and len(title) <= LONGEST_TITLE))
    _require(content is None or isinstance(content, str))
    meta: dict[str, Any] = {"format": form, "title": title}
    pages = 0
    if page_starts is not None:
        places = _numbers(page_starts)
        _require(content is not None and places[:1] == [0] and sorted(places) == places and places[-1] <= len(content))
        meta["page_starts"] = page_starts
        pages = len(page_starts)
    chunks = _chunks(columns, pages, max(most_lines, len(content or "") + 1))
    return Representation(_one_of(get_args(RepType), rep_type), rep_hash, chunks, meta, content)


def _chunks(columns: object, pages: int, lines: int) -> list[PreparedChunk]:
    texts, contexts, index_kinds, span_kinds, starts, ends = (_list(each) for each in _list(columns, 6))
    count = len(texts)
    for column in (contexts, index_kinds, span_kinds, starts, ends):
        _require(len(column) == count)
    if not count:
        return []
    _require(set(map(type, (*texts, *contexts))) == {str})
    for kind in _distinct(index_kinds):
        _one_of(get_args(IndexKind), kind)
    bounds = {"lines": lines, "page": pages, "time": _LARGEST_NUMBER}
    most = min(bounds[_one_of(get_args(SpanKind), kind)] for kind in _distinct(span_kinds))
    _require(min(_numbers(starts)) >= (0 if span_kinds[0] == "time" else 1) and max(_numbers(ends)) <= most)
    _require(all(map(int.__le__, starts, ends)))
    hashes = map(chunk_hash, index_kinds, contexts, texts)
    return list(map(PreparedChunk, texts, contexts, hashes, index_kinds, span_kinds, starts, ends))


def _secret(fields: object) -> ScannerFinding:
    rule, line, digest = _list(fields, 3)
    _require(isinstance(rule, str) and 0 < len(rule) <= _LONGEST_NAME and rule.isprintable())
    _require(_is_count(line) and _fits(_DIGEST, digest))
    return ScannerFinding(rule, line, digest)


def _require(is_right: bool) -> None:
    if not is_right:
        raise InvalidMessage


def _list(value: object, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):  # pyright: ignore[reportUnknownArgumentType] its length is all that is asked
        raise InvalidMessage
    return value  # pyright: ignore[reportUnknownVariableType] what is in it is checked next


def _strings(values: Sequence[object], count: int) -> list[str]:
    _require(len(values) == count and all(isinstance(value, str) for value in values))
    return [str(value) for value in values]


def _numbers(value: object) -> list[int]:
    numbers = _list(value)
    _require(set(map(type, numbers)) <= {int})
    return numbers


def _distinct(values: Iterable[Any]) -> set[Any]:
    try:
        return set(values)
    except TypeError:  # a list or an object is not hashable
        raise InvalidMessage from None


def _one_of(values: tuple[Value, ...], value: Any) -> Value:
    _require(value in values)
    return value


def _fits(pattern: re.Pattern[str], value: object) -> TypeGuard[str]:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST_NUMBER


def _holds_nul(message: Any) -> bool:
    waiting = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and "\0" in value:
            return True
        if isinstance(value, list):
            waiting += value
    return False
