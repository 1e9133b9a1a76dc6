"""Reads what a worker process answers, as if a hostile file wrote it: every type, size, name and number is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, TypeVar, get_args

from armarium.capabilities.corpus.errors import FileTooLarge
from armarium.capabilities.corpus.files.exclusion import SecretMatch
from armarium.capabilities.corpus.files.paths import MEMBER_MARK, is_storable
from armarium.capabilities.corpus.ingest import answers
from armarium.capabilities.corpus.ingest.frames import UnusableFrame, parsed
from armarium.capabilities.corpus.ingest.growth import Growth
from armarium.capabilities.corpus.ingest.prepared import (
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
    passage_hash,
)
from armarium.retrieval.chunks import IndexKind, RepType
from armarium.retrieval.document_types import DocType
from armarium.retrieval.spans import SpanKind

Value = TypeVar("Value")

MOST_OUTCOMES = 25_000
"""Of one file: an archive has at most 10,000 members, each told once, and a few that are not told apart."""

_DOC_TYPES = frozenset(get_args(DocType))
_STATUSES = frozenset(get_args(Status))
_REP_TYPES = frozenset(get_args(RepType))
_INDEX_KINDS = frozenset(get_args(IndexKind))
_SPAN_KINDS = frozenset(get_args(SpanKind))
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


class Untrustworthy(Exception):
    """An answer that this program does not give: whatever sent it is not believed any more."""


@dataclass(slots=True)
class Asked:
    """The file a worker was asked about, and what its answers have come to so far."""

    rel_path: str
    size_bytes: int
    mtime_ns: int
    growth: Growth
    most_lines: int
    """No file that is read has more; one may grow between being opened and being read."""
    _outcomes: int = 0
    _members: set[str] = field(default_factory=set[str])

    @property
    def max_frame_bytes(self) -> int:
        """Most bytes of one answer, which is held in memory: of a document's text, it has a little more than two
        copies, the whole and the passages."""
        return min(3 * self.growth.max_chars + 1_000_000, _FREE_FRAME_BYTES + 3 * self.size_bytes)

    def outcome(self, body: bytes) -> Outcome:
        """What an answer says; `Untrustworthy` when it cannot be one about this file."""
        self._outcomes += 1
        _insist(self._outcomes <= MOST_OUTCOMES)
        try:
            message = parsed(body)
        except UnusableFrame as error:
            raise Untrustworthy from error
        if _ESCAPED_NUL in body:
            _insist(not _holds_nul(message))
        _insist(bool(message))
        kind, *fields = _list(message)
        if kind == answers.PREPARED and len(fields) == 7:
            return self._prepared(fields)
        if kind == answers.REFUSED:
            member, code, reason = _strings(fields, 3)
            _insist(len(member) <= _LONGEST_SHOWN_PATH and _CODE.fullmatch(code) is not None)
            _insist(is_storable(member) and 0 < len(reason) <= _LONGEST_NAME)
            return Refused(f"{self.rel_path}{MEMBER_MARK}{member}", code, reason)
        _insist(not fields)
        if kind == answers.UNCHANGED:
            return Unchanged(self.rel_path, self.size_bytes, self.mtime_ns)
        if kind == answers.VANISHED:
            return Vanished(self.rel_path)
        _insist(kind == answers.FINISHED)
        return Finished(self.rel_path)

    def _prepared(self, fields: list[Any]) -> Prepared:
        member, doc_type, content_hash, status, error, representations, secrets = fields
        rel_path, size_bytes, mtime_ns, container = self.rel_path, self.size_bytes, self.mtime_ns, None
        if member is not None:
            path, size_bytes, mtime_ns = _list(member, 3)
            rel_path, container = self._member_path(path), self.rel_path
            _insist(_is_count(size_bytes) and _is_count(mtime_ns))
        _insist(content_hash == "" or _fits(_HASH, content_hash))
        _insist(error is None if status == "ok" else _fits(_ERROR, error))
        _insist(status == "ok" or not representations)
        prepared = Prepared(
            rel_path,
            _one_of(_DOC_TYPES, doc_type),
            size_bytes,
            mtime_ns,
            content_hash,
            _one_of(_STATUSES, status),
            error,
            container,
            [_representation(each, self.most_lines) for each in _list(representations)],
            [_secret(each) for each in _list(secrets)],
        )
        _insist(len({each.rep_type for each in prepared.representations}) == len(prepared.representations))
        _insist(len(prepared.secrets) <= _MOST_SECRETS)
        try:
            self.growth.spend(prepared)
        except FileTooLarge as too_large:
            raise Untrustworthy from too_large
        return prepared

    def _member_path(self, path: object) -> str:
        _insist(isinstance(path, str))
        assert isinstance(path, str)
        parts = path.split("/")
        _insist(len(path.encode()) <= _LONGEST_PATH_BYTES and is_storable(path))
        _insist("" not in parts and "." not in parts and ".." not in parts and path not in self._members)
        self._members.add(path)
        return f"{self.rel_path}{MEMBER_MARK}{path}"


def _representation(told: object, most_lines: int) -> Representation:
    rep_type, rep_hash, form, title, page_starts, content, columns = _list(told, 7)
    _insist(_fits(_HASH, rep_hash) and isinstance(form, str) and len(form) <= _LONGEST_NAME)
    _insist(title is None or (isinstance(title, str) and len(title) <= LONGEST_TITLE))
    _insist(content is None or isinstance(content, str))
    meta: dict[str, Any] = {"format": form, "title": title}
    pages = 0
    if page_starts is not None:
        _insist(content is not None and _is_rising(_numbers(page_starts), len(content)))
        meta["page_starts"] = page_starts
        pages = len(page_starts)
    chunks = _chunks(columns, pages, max(most_lines, len(content or "") + 1))
    return Representation(_one_of(_REP_TYPES, rep_type), rep_hash, chunks, meta, content)


def _chunks(columns: object, pages: int, lines: int) -> list[PreparedChunk]:
    texts, contexts, index_kinds, span_kinds, starts, ends = (_list(each) for each in _list(columns, 6))
    count = len(texts)
    for column in (contexts, index_kinds, span_kinds, starts, ends):
        _insist(len(column) == count)
    if not count:
        return []
    _insist(set(map(type, (*texts, *contexts))) == {str})
    for kind in _distinct(index_kinds):
        _one_of(_INDEX_KINDS, kind)
    bounds = {"lines": lines, "page": pages, "time": _LARGEST_NUMBER}
    most = min(bounds[_one_of(_SPAN_KINDS, kind)] for kind in _distinct(span_kinds))
    _insist(min(_numbers(starts)) >= (0 if span_kinds[0] == "time" else 1) and max(_numbers(ends)) <= most)
    _insist(all(map(int.__le__, starts, ends)))
    hashes = map(passage_hash, index_kinds, contexts, texts)
    return list(map(PreparedChunk, texts, contexts, hashes, index_kinds, span_kinds, starts, ends))


def _secret(told: object) -> SecretMatch:
    rule, line, digest = _list(told, 3)
    _insist(isinstance(rule, str) and 0 < len(rule) <= _LONGEST_NAME and rule.isprintable())
    _insist(_is_count(line) and _fits(_DIGEST, digest))
    return SecretMatch(rule, line, digest)


def _insist(is_right: bool) -> None:
    if not is_right:
        raise Untrustworthy


def _list(value: object, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):  # pyright: ignore[reportUnknownArgumentType] its length is all that is asked
        raise Untrustworthy
    return value  # pyright: ignore[reportUnknownVariableType] what is in it is checked next


def _strings(values: Sequence[object], count: int) -> list[str]:
    _insist(len(values) == count and all(isinstance(value, str) for value in values))
    return [str(value) for value in values]


def _numbers(value: object) -> list[int]:
    numbers = _list(value)
    _insist(set(map(type, numbers)) <= {int})
    return numbers


def _distinct(values: Iterable[Any]) -> set[Any]:
    try:
        return set(values)
    except TypeError:  # a list or an object is no word
        raise Untrustworthy from None


def _one_of(words: frozenset[Value], value: Any) -> Value:
    for word in words:
        if value == word:
            return word
    raise Untrustworthy


def _fits(pattern: re.Pattern[str], value: object) -> TypeGuard[str]:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST_NUMBER


def _is_rising(numbers: list[int], most: int) -> bool:
    rises: Callable[[int, int], bool] = int.__le__
    return bool(numbers) and numbers[0] == 0 and numbers[-1] <= most and all(map(rises, numbers, numbers[1:]))


def _holds_nul(message: Any) -> bool:
    waiting = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and "\0" in value:
            return True
        if isinstance(value, list):
            waiting += value
    return False
