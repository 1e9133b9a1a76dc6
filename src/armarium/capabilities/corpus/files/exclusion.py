"""Decides which files are never indexed or shown: by path, and by credentials in the content."""

from __future__ import annotations

import codecs
import hmac
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.capabilities.corpus.files.secret_patterns import GROUP_CHECKS, SecretRule, named_rules
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import ScannerFinding
from armarium.foundation.files.credential_files import CREDENTIAL_FILES
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.ignore import IgnoreRules
from armarium.foundation.files.path_rules import (
    PathRules,
    as_directories,
    fold,
    name_filter,
    name_forms,
)

IGNORED_PATHS: tuple[str, ...] = (".git/", "node_modules/", "dist/", "build/", ".venv/")
"""Excluded by default. The settings can include one again: `!build/`."""

STATE_PATHS: tuple[str, ...] = (".dir2mcp/", ".armarium/")
"""The state of the server itself: index, token, data of other capabilities. No setting includes them."""

_CONTRACT_DIRECTORIES = ("**/.git/**", "**/node_modules/**", "**/.dir2mcp/**")
_FIRST_NAME = CREDENTIAL_FILES.index("**/*.pem")

DEFAULT_PATH_EXCLUDES: tuple[str, ...] = (
    *CREDENTIAL_FILES[:_FIRST_NAME], *_CONTRACT_DIRECTORIES, *CREDENTIAL_FILES[_FIRST_NAME:]
)  # fmt: skip
"""Names of files that usually contain credentials, and the contract's directories. The settings add to them, or include
one again: `!**/ca.pem`."""


def with_default_excludes(patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns after all defaults that are not among them: adding one pattern must not disable the defaults."""
    return (*(default for default in DEFAULT_PATH_EXCLUDES if default not in patterns), *patterns)


_engine: Any = cast(Any, re2)._re2.RE2
_UNANCHORED: Any = _engine.Anchor.UNANCHORED
# Memory for the automaton of all rules together. When it is exhausted, RE2 becomes slower but finds the same.
_AUTOMATON_BYTES = 64 * 1024 * 1024
_MAX_MATCHES = 100
_LONGEST_KEY_BYTES = 16 * 1024
_DIGEST_CHARS = 32
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Exclusion:
    """The exclusion rules, checked before content is indexed or shown."""

    def __init__(
        self,
        path_excludes: Sequence[str] = DEFAULT_PATH_EXCLUDES,
        secret_patterns: Sequence[str] | None = None,
        *,
        state_paths: Sequence[str] = STATE_PATHS,
        digest_key: bytes = b"",
    ) -> None:
        """`secret_patterns` replace the default rules. Raises `ConfigError` with the name of an invalid pattern."""
        self._digest_key = digest_key
        lines = as_directories([*IGNORED_PATHS, *path_excludes, *state_paths])
        try:
            self._paths = IgnoreRules.from_lines(lines)
        except InvalidPattern as error:
            faulty = error.details.get("pattern")
            raise ConfigError(
                f"security.path_excludes has an invalid pattern: {faulty}", hint="patterns are written as in .gitignore"
            ) from error
        # Names of credential files are matched in every spelling: SERVER.PEM, Id_Rsa. Negated patterns too.
        of_credentials = [line for line in path_excludes if line in CREDENTIAL_FILES or line.startswith("!")]
        self._credentials = PathRules([*of_credentials, *state_paths])
        self._may_hide = name_filter(name_forms(lines))
        rules = [_CompiledRule(rule) for rule in named_rules(secret_patterns)]
        self._all = _Gate(rules)
        self._groups = [
            _Gate([rule for rule in rules if not rule.is_checked]),
            _Gate([rule for rule in rules if rule.is_checked]),
        ]
        """About one file in a hundred contains text that only looks like a token. In those files, only the rules with
        additional checks are tried one by one."""

    def excludes_path(self, rel_path: str, *, is_directory: bool = False) -> bool:
        """Whether the path, relative to the root, or any directory above it is excluded."""
        return self._paths.hides(rel_path, is_directory) or (
            fold(rel_path) != rel_path and self._credentials.match(rel_path, is_directory)
        )

    def excludes_entry(self, rel_path: str, is_directory: bool) -> bool:
        """Whether the entry itself is excluded, given that no directory above it is."""
        return self._paths.hides_entry(rel_path, is_directory) or (
            fold(rel_path) != rel_path and self._credentials.match_entry(rel_path, is_directory)
        )

    def may_hide_entry(self, name: str) -> bool:
        """False if no pattern can match the name of an entry. Much faster than `excludes_entry`."""
        return self._may_hide(name) or self._credentials.may_match(name)

    def secrets_in(self, content: bytes | str) -> list[ScannerFinding]:
        """The first hundred credentials in a file or in text to be shown, by line. Without a key, digests are empty."""
        text = _as_utf8(content)
        found: list[ScannerFinding] = []
        for rule, begin in self._candidates(text):
            line, counted_to = 1, 0
            for start, end in islice(rule.matches(text, begin), _MAX_MATCHES):
                line += text.count(b"\n", counted_to, start)
                counted_to = start
                found.append(ScannerFinding(rule.name, line, self._digest(text[start : rule.reach(text, end)])))
        return sorted(found, key=lambda match: match.line)[:_MAX_MATCHES]

    def _digest(self, credential: bytes) -> str:
        return hmac.digest(self._digest_key, credential, "sha256").hex()[:_DIGEST_CHARS] if self._digest_key else ""

    def _candidates(self, text: bytes) -> Iterator[tuple[_CompiledRule, int]]:
        """The rules that may match, each with the position to start from."""
        first = self._all.first(text, 0)
        if first is None:
            return
        for group in self._groups:
            begin = group.first(text, first)
            if begin is not None:
                yield from ((rule, begin) for rule in group.rules)


class _CompiledRule:
    """One rule, searched for on its own once a file is known to contain something."""

    def __init__(self, rule: SecretRule) -> None:
        self.name = rule.name
        self.pattern = rule.pattern
        self._ends_with = None if rule.ends_with is None else rule.ends_with.encode()
        self._regex = _regex(rule.pattern)
        if not self._regex.ok():
            reason = self._regex.error().decode("utf-8", "replace")
            hint = "patterns are regular expressions in RE2's syntax, which has no look-around and no back-references"
            message = f"security.secret_patterns has an invalid pattern: {rule.pattern} ({reason})"
            raise ConfigError(message, hint=hint, pattern=rule.pattern)
        names: dict[bytes, int] = dict(self._regex.NamedCapturingGroups())
        self._checks: list[tuple[int, Callable[[str], bool]]] = [
            (names[name.encode()], check) for name, check in GROUP_CHECKS.items() if name.encode() in names
        ]
        self.is_checked = bool(self._checks)

    def reach(self, text: bytes, end: int) -> int:
        """The end of the credential whose match ends at `end`."""
        if self._ends_with == b"":
            return end
        found = text.find(self._ends_with or b"\n", end, end + _LONGEST_KEY_BYTES)
        return found if found >= 0 else min(len(text), end + _LONGEST_KEY_BYTES)

    def matches(self, text: bytes, begin: int) -> Iterator[tuple[int, int]]:
        position = begin
        while position <= len(text):
            spans: list[tuple[int, int]] = self._regex.Match(_UNANCHORED, text, position, len(text))
            start, end = spans[0]
            if start < 0:
                return
            if self._holds(text, spans):
                yield start, end
            # A configured pattern may match the empty string, which must not loop forever.
            position = max(end, start + 1)

    def _holds(self, text: bytes, spans: list[tuple[int, int]]) -> bool:
        for group, check in self._checks:
            start, end = spans[group]
            if start >= 0 and not check(text[start:end].decode("utf-8", "replace")):
                return False
        return True


class _Gate:
    """Several rules as one expression, so that text without any match is read only once."""

    def __init__(self, rules: Sequence[_CompiledRule]) -> None:
        self.rules = rules
        patterns = [rule.pattern for rule in rules]
        together = _regex("|".join(f"(?:{pattern})" for pattern in patterns), capture=False)
        # RE2 refuses expressions that are too large, and an open \Q would quote the rules after it.
        if not together.ok() or any(r"\Q" in pattern for pattern in patterns):
            self._regexes = [_regex(pattern, capture=False) for pattern in patterns]
        else:
            self._regexes = [together] if rules else []

    def first(self, text: bytes, begin: int) -> int | None:
        starts = [regex.Match(_UNANCHORED, text, begin, len(text))[0][0] for regex in self._regexes]
        return min((start for start in starts if start >= 0), default=None)


def _as_utf8(content: bytes | str) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "replace")
    if content.startswith(_BYTE_ORDER_MARKS):
        return content.decode("utf-16", "replace").encode("utf-8", "replace")
    return content


def _regex(pattern: str, *, capture: bool = True) -> Any:
    options: Any = cast(Any, re2).Options()
    options.log_errors = False
    options.never_capture = not capture
    options.max_mem = _AUTOMATON_BYTES
    return _engine(pattern.encode("utf-8", "replace"), options)
