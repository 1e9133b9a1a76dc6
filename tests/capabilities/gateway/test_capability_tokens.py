"""Capability tokens: JWTs that any library can verify, good for one server, one user, some sources and a short time."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.gateway.errors import TokenExpired, UnauthorizedSource
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens, CapabilityVerifier, server_key

SECRET = b"the secret of the gateway, long enough"
LATER = 2**40


def verifier(server: str, secret: bytes = SECRET, **more: Any) -> CapabilityVerifier:
    return CapabilityVerifier(server, server_key(secret, server), **more)


def claims(**changes: Any) -> dict[str, Any]:
    return {"aud": "one", "sub": "anna", "src": ["a"], "exp": LATER} | changes


def signed(payload: dict[str, Any], key: str | None = None, algorithm: str = "HS256") -> str:
    return jwt.encode(payload, server_key(SECRET, "one") if key is None else key, algorithm)


def legacy(payload: Any, key: str) -> str:
    """A token in the format before JWT."""
    body = f"arc1.{base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b'=').decode()}"
    signature = base64.urlsafe_b64encode(hmac.digest(key.encode(), body.encode(), "sha256")).rstrip(b"=")
    return f"{body}.{signature.decode()}"


@pytest.mark.contract("G12-4")
def test_a_capability_token_is_good_for_its_user_its_sources_and_its_time() -> None:
    now = 1000.0
    tokens = CapabilityTokens(SECRET, ttl_s=60, clock=lambda: now)
    one = verifier("one", clock=lambda: now)
    token, expires_at = tokens.issue("one", "anna", ["a", "b"], ttl_s=3600)
    assert expires_at == 1060, "never longer than the settings allow"
    one.verify(token, "anna", ["a"])
    one.verify(token, "anna", ["a", "b"])
    for username, sources in (("lex", ["a"]), ("anna", ["c"]), ("anna", ["a", "c"])):
        with pytest.raises(UnauthorizedSource):
            one.verify(token, username, sources)
    now = 1060.0
    with pytest.raises(TokenExpired):
        one.verify(token, "anna", ["a"])


def test_any_jwt_library_can_verify_an_issued_token() -> None:
    token, expires_at = CapabilityTokens(SECRET).issue("one", "anna", ["b", "a", "b"])
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    decoded = jwt.decode(token, server_key(SECRET, "one"), algorithms=["HS256"], audience="one")
    assert decoded == {"aud": "one", "sub": "anna", "src": ["a", "b"], "exp": expires_at}
    assert 0 < expires_at - time.time() <= 300
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, server_key(SECRET, "one"), algorithms=["HS256"], audience="two")


def test_a_token_that_any_jwt_library_signed_with_the_key_is_accepted() -> None:
    token = signed(claims())
    verifier("one", clock=lambda: LATER - 1).verify(token, "anna", ["a"])
    with pytest.raises(TokenExpired):
        verifier("one", clock=lambda: LATER).verify(token, "anna", ["a"])


def test_a_token_that_was_changed_or_signed_by_somebody_else_is_refused() -> None:
    tokens, one = CapabilityTokens(SECRET), verifier("one")
    token, _ = tokens.issue("one", "anna", ["a"])
    header, body, signature = token.split(".")
    forged, _ = CapabilityTokens(b"another secret altogether").issue("one", "anna", ["a"])
    other, _ = tokens.issue("one", "lex", ["law"])
    changed = f"{header}.{other.split('.')[1]}.{signature}"
    for wrong in (forged, changed, f"x{token}", token[:-1], f"{header}.{body}", "", ".", "a.b.c", "\udcff.x.y"):
        with pytest.raises(TokenExpired):
            one.verify(wrong, "anna", ["a"])


@pytest.mark.parametrize(
    "token",
    [
        signed(claims(), key="", algorithm="none"),
        signed(claims(), algorithm="HS384"),
        signed(claims(), algorithm="HS512"),
        signed(claims(), key=server_key(SECRET, "two")),
        signed(claims(exp=int(time.time()) - 1)),
        signed({name: value for name, value in claims().items() if name != "exp"}),
        signed({name: value for name, value in claims().items() if name != "aud"}),
        signed({name: value for name, value in claims().items() if name != "src"}),
        signed(claims(src=None)),
        signed(claims(src=5)),
        signed(claims(note="x" * 20_000)),
    ],
    ids=["unsigned", "HS384", "HS512", "key", "expired", "no exp", "no aud", "no src", "null", "number", "too long"],
)
def test_a_token_that_is_not_exactly_ours_is_refused(token: str) -> None:
    with pytest.raises(TokenExpired):
        verifier("one").verify(token, "anna", ["a"])


def test_a_token_for_one_server_is_of_no_use_at_another_that_has_a_source_of_the_same_id() -> None:
    token, _ = CapabilityTokens(SECRET).issue("one", "anna", ["files"])
    verifier("one").verify(token, "anna", ["files"])
    with pytest.raises(TokenExpired):
        verifier("two").verify(token, "anna", ["files"])


@pytest.mark.parametrize("make", [signed, legacy])
def test_a_server_cannot_make_a_token_for_another_with_the_key_it_has(make: Any) -> None:
    made = make(claims(aud="two", sub="lex", src=["files"]), server_key(SECRET, "one"))
    with pytest.raises(TokenExpired):
        verifier("two").verify(made, "lex", ["files"])
    with pytest.raises(UnauthorizedSource, match="'two'"):
        verifier("one").verify(made, "lex", ["files"])


def test_a_token_of_the_format_before_jwt_is_still_accepted() -> None:
    token = legacy(claims(), server_key(SECRET, "one"))
    verifier("one").verify(token, "anna", ["a"])
    with pytest.raises(UnauthorizedSource):
        verifier("one").verify(token, "anna", ["b"])
    with pytest.raises(UnauthorizedSource):
        verifier("one").verify(token, "lex", ["a"])
    with pytest.raises(TokenExpired):
        verifier("one", clock=lambda: LATER).verify(token, "anna", ["a"])


@pytest.mark.parametrize("payload", [[], "text", 5, None, {"aud": "one"}, {"aud": "one", "sub": "anna", "exp": "x"}])
def test_a_token_of_the_format_before_jwt_with_other_claims_is_refused(payload: Any) -> None:
    with pytest.raises(TokenExpired):
        verifier("one").verify(legacy(payload, server_key(SECRET, "one")), "anna", ["a"])


@given(st.text(max_size=60), st.sampled_from(["", "arc1.", "arc1.e30."]))
def test_whatever_is_sent_as_a_token_is_refused_with_the_error_of_the_contract(text: str, prefix: str) -> None:
    with pytest.raises(TokenExpired):
        verifier("one").verify(prefix + text, "anna", ["a"])
