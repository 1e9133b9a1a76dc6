"""Sessions of the console: both secrets are needed, and a session ends."""

from __future__ import annotations

import pytest

from armarium.foundation.security.identity import Principal
from armarium.foundation.settings.model import ConsoleSettings
from armarium.surfaces.console.sessions import ConsoleSessions, Identity, Secrets, set_cookie
from armarium.surfaces.http.responses import HttpError
from support.manual_clock import ManualClock

ANN, BEN = Principal("ann", (), "a"), Principal("ben", (), "b")
SCOPE = {"type": "http", "path": "/api/status", "scheme": "http", "server": ("127.0.0.1", 8091)}
HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> ConsoleSessions:
    return ConsoleSessions(ConsoleSettings(inactivity_timeout=2 * HOUR, max_lifetime=5 * HOUR), clock)


def sent(secrets: Secrets, **changed: str) -> dict[bytes, bytes]:
    headers = {
        "host": "127.0.0.1:8091",
        "cookie": f"theme=dark; armarium_8091={secrets.cookie}; other=1",
        "x-armarium-proof": secrets.proof,
    }
    changes = {name.replace("_", "-"): value for name, value in changed.items()}
    return {name.encode(): value.encode() for name, value in (headers | changes).items()}


def test_the_cookie_and_the_proof_identify_the_caller(sessions: ConsoleSessions) -> None:
    session, secrets = sessions.open(Identity(ANN, "key-of-ann"))
    caller = sessions.caller_of(sent(secrets), SCOPE)
    assert caller is not None
    assert (caller.principal, caller.surface, caller.session) == (ANN, "console", session.id)
    assert caller.credential == "key-of-ann"
    assert "key-of-ann" not in repr(caller) + repr(session)
    assert secrets.cookie not in repr(session) + repr(secrets)


@pytest.mark.parametrize("proof", ["", "x", "another"])
def test_the_cookie_alone_is_worth_nothing(sessions: ConsoleSessions, proof: str) -> None:
    _, secrets = sessions.open(Identity(ANN))
    if proof == "another":
        proof = sessions.open(Identity(ANN))[1].proof
    with pytest.raises(HttpError) as refused:
        sessions.caller_of(sent(secrets, x_armarium_proof=proof), SCOPE)
    assert (refused.value.status, refused.value.reason) == (401, "UNAUTHORIZED")


def test_the_proof_tells_which_of_several_sessions_it_is(sessions: ConsoleSessions) -> None:
    """Another port can set the cookie of a valid session, which browsers send first."""
    _, planted = sessions.open(Identity(BEN))
    mine, own = sessions.open(Identity(ANN))
    for cookies in ((planted, own), (own, planted)):
        header = "; ".join(f"armarium_8091={each.cookie}" for each in cookies)
        caller = sessions.caller_of(sent(own, cookie=header), SCOPE)
        assert caller is not None
        assert caller.session == mine.id
        element = sessions.caller_of_element(sent(own, cookie=header), SCOPE, mine.id)
        assert element is not None
        assert element.session == mine.id


def test_the_proof_alone_is_worth_nothing(sessions: ConsoleSessions) -> None:
    _, secrets = sessions.open(Identity(ANN))
    assert sessions.caller_of(sent(secrets, cookie="armarium_8091=guessed"), SCOPE) is None
    assert sessions.caller_of(sent(secrets, cookie=f"armarium_9000={secrets.cookie}"), SCOPE) is None
    assert sessions.caller_of(sent(secrets, cookie=""), SCOPE) is None


@pytest.mark.parametrize("path", ["/mcp", "/mcp/sandbox", "/metrics", "/api", "/apix/y", "/console"])
def test_cookies_count_for_the_json_api_only(sessions: ConsoleSessions, path: str) -> None:
    _, secrets = sessions.open(Identity(ANN))
    assert sessions.caller_of(sent(secrets), SCOPE | {"path": path}) is None


@pytest.mark.parametrize(
    "header",
    [
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=str,
)
def test_pages_of_other_origins_cannot_use_a_session(sessions: ConsoleSessions, header: dict[str, str]) -> None:
    """Another port of this machine is another origin, and the same site."""
    _, secrets = sessions.open(Identity(ANN))
    with pytest.raises(HttpError) as refused:
        sessions.caller_of(sent(secrets, **header), SCOPE)
    assert (refused.value.status, refused.value.reason) == (403, "FORBIDDEN_ORIGIN")


def test_our_own_page_can(sessions: ConsoleSessions) -> None:
    _, secrets = sessions.open(Identity(ANN))
    own = {"origin": "http://127.0.0.1:8091", "sec-fetch-site": "same-origin"}
    assert sessions.caller_of(sent(secrets, **own), SCOPE) is not None


def test_a_session_ends_when_it_is_idle(sessions: ConsoleSessions, clock: ManualClock) -> None:
    _, secrets = sessions.open(Identity(ANN))
    clock.advance(1.9 * HOUR)
    assert sessions.caller_of(sent(secrets), SCOPE) is not None
    clock.advance(1.9 * HOUR)
    assert sessions.caller_of(sent(secrets), SCOPE) is not None
    clock.advance(2 * HOUR)
    assert sessions.caller_of(sent(secrets), SCOPE) is None


def test_a_request_without_the_proof_does_not_keep_a_session_alive(
    sessions: ConsoleSessions, clock: ManualClock
) -> None:
    _, secrets = sessions.open(Identity(ANN))
    clock.advance(1.9 * HOUR)
    with pytest.raises(HttpError):
        sessions.caller_of(sent(secrets, x_armarium_proof="x"), SCOPE)
    clock.advance(0.2 * HOUR)
    assert sessions.caller_of(sent(secrets), SCOPE) is None


def test_a_session_ends_at_its_maximum_age_though_it_is_in_use(sessions: ConsoleSessions, clock: ManualClock) -> None:
    session, secrets = sessions.open(Identity(ANN))
    for _ in range(4):
        clock.advance(1.2 * HOUR)
        assert sessions.caller_of(sent(secrets), SCOPE) is not None
    ends_at = sessions.expires_at(session.id)
    assert ends_at is not None
    assert ends_at - clock() == pytest.approx(0.2 * HOUR)
    clock.advance(0.3 * HOUR)
    assert sessions.caller_of(sent(secrets), SCOPE) is None


def test_a_session_ends_with_the_key_that_opened_it(sessions: ConsoleSessions) -> None:
    is_valid = True
    _, secrets = sessions.open(Identity(ANN, "key", lambda: is_valid))
    assert sessions.caller_of(sent(secrets), SCOPE) is not None
    is_valid = False
    assert sessions.caller_of(sent(secrets), SCOPE) is None


def test_logging_out_ends_one_session_or_all_of_a_caller(sessions: ConsoleSessions) -> None:
    first, a = sessions.open(Identity(ANN))
    _, b = sessions.open(Identity(ANN))
    _, c = sessions.open(Identity(BEN))
    sessions.close(first.id)
    assert [sessions.caller_of(sent(each), SCOPE) is not None for each in (a, b, c)] == [False, True, True]
    assert sessions.close_all(ANN) == 1
    assert [sessions.caller_of(sent(each), SCOPE) is not None for each in (a, b, c)] == [False, False, True]


def test_a_caller_has_twenty_sessions_and_the_longest_unused_one_makes_room(
    sessions: ConsoleSessions, clock: ManualClock
) -> None:
    _, of_ben = sessions.open(Identity(BEN))
    opened = []
    for _ in range(20):
        clock.advance(1)
        opened.append(sessions.open(Identity(ANN))[1])
    clock.advance(1)
    sessions.caller_of(sent(opened[0]), SCOPE)
    sessions.open(Identity(ANN))
    alive = [sessions.caller_of(sent(each), SCOPE) is not None for each in opened]
    assert alive == [True, False, *[True] * 18]
    assert sessions.caller_of(sent(of_ben), SCOPE) is not None


def test_over_tls_the_cookie_is_bound_to_the_host() -> None:
    assert set_cookie(SCOPE, "v", 60) == "armarium_8091=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=60"
    secure = set_cookie(SCOPE | {"scheme": "https"}, "v", None)
    assert secure == "__Host-armarium=v; Path=/; HttpOnly; SameSite=Strict; Secure"
