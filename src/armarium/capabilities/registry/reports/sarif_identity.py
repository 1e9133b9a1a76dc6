"""What tells the results of a SARIF run apart, and recognises them: fingerprints, the content around them, digests."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from armarium.capabilities.registry.contents import PLACE_BYTES, place_in_snippet
from armarium.capabilities.registry.reports.fields import line_in, object_in, text_in
from armarium.capabilities.registry.reports.sarif_rules import Rule
from armarium.capabilities.registry.storage.columns import to_json
from armarium.foundation.schema import Json

FINGERPRINT = "armariumFingerprint/v1"
"""Has the fingerprint of a finding in an exported registry."""
PLACE = "armariumPlace/v1"
"""Has the hashes of the content around a finding in an exported registry."""
MAX_SNIPPET_CHARS = 10_000
"""Longer snippets are not used."""

_OCCURRENCE = frozenset({"guid", "correlationGuid", "occurrenceCount", "provenance"})
_PLACE = re.compile(rf"[0-9a-f]{{{2 * PLACE_BYTES}}}")
_LINE_HASH = "primaryLocationLineHash"
_VERSIONED = re.compile(r".+/v\d+")
_FINGERPRINT = re.compile(r"\S{8,}")


def fingerprint(result: Json, rule: Rule, at: str) -> str | None:
    """The fingerprint of a result. Of the partial fingerprints, only those made for this purpose are used.

    The rule is part of it: CodeQL's hash of a line is the same for all findings in that line.
    """
    whole, partial = object_in(result, "fingerprints", at), object_in(result, "partialFingerprints", at)
    if not whole and not partial:
        return None
    if isinstance(exported := whole.get(FINGERPRINT), str) and exported:
        return exported
    partial = {name: value for name, value in partial.items() if name != PLACE}
    known = [(name, value) for name, value in sorted(whole.items()) if _is_fingerprint(value)]
    if not known and _is_fingerprint(partial.get(_LINE_HASH)):
        known = [(_LINE_HASH, partial[_LINE_HASH])]
    if not known:
        known = [pair for pair in sorted(partial.items()) if _VERSIONED.fullmatch(pair[0]) and _is_fingerprint(pair[1])]
    if not known:
        return None
    return hashlib.sha256(repr((rule.id, known)).encode("utf-8", "replace")).hexdigest()[:32]


def _is_fingerprint(value: Any) -> bool:
    # Semgrep writes `requires login` instead of a hash.
    return isinstance(value, str) and _FINGERPRINT.fullmatch(value) is not None


def place(physical: Json, region: Json, result: Json, at: str) -> bytes:
    """The content around a finding: as an exported registry has it, or from the snippet with the most lines."""
    exported = object_in(result, "partialFingerprints", at).get(PLACE)
    if isinstance(exported, str) and _PLACE.fullmatch(exported):
        return bytes.fromhex(exported)
    if "snippet" not in region and "contextRegion" not in physical:
        return b""
    line = line_in(region, "startLine", at)
    if line is None:
        return b""
    around = object_in(physical, "contextRegion", at)
    if first_line := line_in(around, "startLine", at):
        column = line_in(region, "startColumn", at)
        text = text_in(object_in(around, "snippet", at), "text", at)
        if len(text) <= MAX_SNIPPET_CHARS and (found := place_in_snippet(text, first_line, line, column)):
            return found
    text = text_in(object_in(region, "snippet", at), "text", at)
    # A snippet of the region itself begins at its column.
    return place_in_snippet(text, 1, 1, None) if 0 < len(text) <= MAX_SNIPPET_CHARS else b""


def digest_of(result: Json) -> str:
    """A digest of a result without what names the single occurrence."""
    content = {name: value for name, value in result.items() if name not in _OCCURRENCE}
    return hashlib.sha256(to_json(content).encode()).hexdigest()[:12]
