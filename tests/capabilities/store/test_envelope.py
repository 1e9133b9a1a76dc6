"""Envelopes open for whom they were sealed, until they expire, and give nothing away otherwise."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from armarium.capabilities.store.index.envelope import EnvelopeRejected, Keks
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import FileSecret

SECRET = "sk-canary-7f3a"
AAD = b'["tenant","project","reference"]'
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
OLD = SecretStr("an old key of sixteen")
NEW = SecretStr("a new key of sixteen.")


def sealed(keks: Keks) -> str:
    return keks.seal(SECRET, aad=AAD, expires_at=LATER)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary())
def test_what_is_sealed_opens_again(secret: str, aad: bytes) -> None:
    keks = Keks({1: OLD})
    assert keks.open(keks.seal(secret, aad=aad, expires_at=LATER), aad=aad, now=NOW) == secret


@pytest.mark.contract("S20-2")
def test_an_envelope_has_exactly_the_fields_of_the_contract_and_none_holds_the_secret() -> None:
    envelope = sealed(Keks({1: OLD}))
    parts = json.loads(envelope)
    assert set(parts) == {"kek_id", "dek_id", "ciphertext", "aad", "expires_at"}
    assert len(b64decode(parts["dek_id"])) == 16
    assert SECRET.encode() not in envelope.encode() + b64decode(parts["ciphertext"])


@pytest.mark.contract("S20-3")
def test_no_two_envelopes_are_alike() -> None:
    keks = Keks({1: OLD})
    first, second = json.loads(sealed(keks)), json.loads(sealed(keks))
    assert first["dek_id"] != second["dek_id"]
    assert first["ciphertext"] != second["ciphertext"]


@pytest.mark.contract("S15-5")
def test_the_largest_id_encrypts_and_older_ones_still_open() -> None:
    before, after = Keks({9: OLD}), Keks({9: OLD, 10: NEW})
    assert json.loads(sealed(after))["kek_id"] == 10
    assert after.open(sealed(before), aad=AAD, now=NOW) == SECRET
    with pytest.raises(EnvelopeRejected):
        before.open(sealed(after), aad=AAD, now=NOW)


def test_a_key_whose_file_changes_encrypts_at_once_and_what_the_previous_one_sealed_still_opens(tmp_path: Path) -> None:
    file = tmp_path / "kek"
    file.write_text(OLD.get_secret_value())
    keks = Keks({1: FileSecret("store.security.encryption_keks.1", file)})
    before = sealed(keks)
    file.write_text(NEW.get_secret_value())
    after = sealed(keks)
    assert keks.open(before, aad=AAD, now=NOW) == keks.open(after, aad=AAD, now=NOW) == SECRET
    assert Keks({1: NEW}).open(after, aad=AAD, now=NOW) == SECRET
    with pytest.raises(EnvelopeRejected):
        Keks({1: NEW}).open(before, aad=AAD, now=NOW)


@pytest.mark.contract("S20-3")
def test_the_same_id_with_another_secret_does_not_open() -> None:
    with pytest.raises(EnvelopeRejected):
        Keks({1: NEW}).open(sealed(Keks({1: OLD})), aad=AAD, now=NOW)


def flipped(encoded: str) -> str:
    raw = bytearray(b64decode(encoded))
    raw[-1] ^= 1
    return b64encode(raw).decode()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("kek_id", lambda kek_id: kek_id + 1),
        ("kek_id", str),
        ("kek_id", lambda kek_id: [kek_id]),
        ("kek_id", lambda kek_id: -1),
        ("dek_id", flipped),
        ("ciphertext", flipped),
        ("ciphertext", lambda text: text[:8]),
        ("ciphertext", lambda text: "ü"),
        ("aad", flipped),
        ("aad", lambda aad: None),
        ("expires_at", lambda until: until.replace("2026", "2036")),
        ("expires_at", lambda until: until.removesuffix("Z")),
        ("expires_at", lambda until: 12),
    ],
)
def test_a_changed_field_is_rejected(field: str, change: Callable[[Any], Any]) -> None:
    keks = Keks({1: OLD, 2: NEW})
    parts = json.loads(sealed(keks))
    changed = json.dumps(parts | {field: change(parts[field])})
    with pytest.raises(EnvelopeRejected):
        keks.open(changed, aad=AAD, now=NOW)


def test_a_stored_aad_does_not_stand_in_for_the_expected_one() -> None:
    keks = Keks({1: OLD})
    other = b64encode(b"other").decode()
    for envelope in (sealed(keks), json.dumps(json.loads(sealed(keks)) | {"aad": other})):
        with pytest.raises(EnvelopeRejected):
            keks.open(envelope, aad=b"other", now=NOW)


def test_an_envelope_opens_until_it_expires() -> None:
    keks = Keks({1: OLD})
    assert keks.open(sealed(keks), aad=AAD, now=LATER - timedelta(seconds=1)) == SECRET
    with pytest.raises(EnvelopeRejected):
        keks.open(sealed(keks), aad=AAD, now=LATER)


@given(st.text())
def test_anything_else_is_rejected(junk: str) -> None:
    with pytest.raises(EnvelopeRejected):
        Keks({1: OLD}).open(junk, aad=AAD, now=NOW)


@pytest.mark.parametrize("junk", ["[" * 100_000, "{}", "null", "[1]", '{"kek_id": 1}', '"text"'])
def test_json_that_is_no_envelope_is_rejected(junk: str) -> None:
    with pytest.raises(EnvelopeRejected):
        Keks({1: OLD}).open(junk, aad=AAD, now=NOW)


@pytest.mark.contract("S20-6")
def test_a_rejection_carries_nothing_of_the_envelope() -> None:
    keks = Keks({1: OLD})
    envelope = sealed(keks)
    with pytest.raises(EnvelopeRejected) as rejected:
        keks.open(envelope[:-2], aad=AAD, now=NOW)
    error = rejected.value
    assert error.__context__ is None
    told = repr((error.args, error.hint, error.details, error.private))
    assert json.loads(envelope)["ciphertext"] not in told


def test_keys_do_not_show_themselves() -> None:
    shown = repr(Keks({1: OLD, 3: NEW}))
    assert shown == "Keks(ids=[1, 3])"


@pytest.mark.contract("S15-5")
def test_without_any_key_nothing_can_be_kept() -> None:
    with pytest.raises(ConfigError) as refused:
        Keks({})
    assert "encryption_keks" in (refused.value.hint or "")
