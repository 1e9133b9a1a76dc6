"""Files are excluded by path and by content, and no part of a secret is stored."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.capabilities.corpus.files.exclusion import (
    DEFAULT_PATH_EXCLUDES,
    Exclusion,
    with_default_excludes,
)
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import ScannerFinding

KEY_ID = "AKIA" + "2E0A8F3B244C9986"
CONTRACT_EXCLUDES = [
    "**/.git/**",
    "**/node_modules/**",
    "**/.dir2mcp/**",
    "**/.env",
    "**/*.pem",
    "**/*.key",
    "**/id_rsa",
]
NAMES = st.sampled_from(
    ["a", "b", "A.PEM", "a.pem", ".pem", "pem", "build", ".env", "x.env", "é.key", "a b", "-", "key"]
)
PATTERNS = st.lists(
    st.sampled_from(
        [
            "a", "/a", "a/", "a/**", "**/a/**", "/a/b", "a/b/**", "**/a/b", "*.pem", "**/*.pem", "/*.pem", "*.k*", "?",
            "a*", "**/.e*", ".*",
            "[ab]", "**", "*", "!a", "!a/b", "!*.pem", "b/*", "#a", "", " a", "a ", "\\#a", "a/*/b", "a/**/b", "*b",
        ]
    ),
    max_size=5,
)  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "deep/down/.git/HEAD",
        "node_modules/left-pad/index.js",
        "web/node_modules/x.js",
        "dist/bundle.js",
        "packages/a/build/out.txt",
        ".venv/lib/site.py",
        ".dir2mcp/secret.token",
        "sub/.dir2mcp/meta.sqlite",
        ".env",
        "service/.env",
        ".env.local",
        "deploy/.env.staging",
        "deploy/prod.env",
        ".ssh/.env.example",
        "node_modules/x/.env.example",
        "certs/server.pem",
        "server.key",
        ".ssh/id_rsa",
        "id_ed25519",
        "home/.aws/credentials",
        "backup.zip!/app/.env",
        "backup.tar.gz!/inner.zip!/keys/a.pem",
        "certs/SERVER.PEM",
        "certs/Server.Key",
        "ID_RSA",
        ".SSH/config",
        "service/.ENV",
        "BACKUP.ZIP!/KEYS/A.PEM",
    ],
)
def test_sensitive_and_generated_paths_are_excluded_by_default(path: str) -> None:
    assert Exclusion().excludes_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "builder/plan.md",
        "docs/environment.md",
        "a.env.md",
        ".env.example",
        "service/.env.template",
        "example.env",
        "docs.environment",
        "src/keyring.py",
        "distribution/x",
        ".github/a.yml",
        "BUILD/plan.md",
        "Dist/notes.md",
        ".ENV.EXAMPLE",
        "KEYS.md",
    ],
)
def test_other_paths_are_not(path: str) -> None:
    assert not Exclusion().excludes_path(path)


def test_the_contracts_list_excludes_what_it_says() -> None:
    exclusion = Exclusion(CONTRACT_EXCLUDES)
    assert exclusion.excludes_path("a/.git/x")
    assert exclusion.excludes_path("id_rsa")
    assert not exclusion.excludes_path("id_rsa.pub")


def test_a_pattern_of_the_settings_is_added_to_the_defaults() -> None:
    for added in ((), ("drafts/",), ("**/*.pem", "drafts/"), tuple(CONTRACT_EXCLUDES)):
        patterns = CorpusSettings(path_excludes=added).path_excludes
        assert set(patterns) == {*DEFAULT_PATH_EXCLUDES, *added}
        assert all(map(Exclusion(patterns).excludes_path, [".env", "a/.env.staging", "x.key", "id_ed25519", ".ssh/x"]))
        assert Exclusion(patterns).excludes_path("drafts/a.md") == ("drafts/" in added)


def test_a_pattern_of_the_settings_has_the_last_word_on_a_default() -> None:
    exclusion = Exclusion(with_default_excludes(["!**/ca.pem"]))
    assert not exclusion.excludes_path("certs/ca.pem")
    assert exclusion.excludes_path("certs/server.pem")
    assert not exclusion.excludes_path("certs/CA.PEM")
    assert exclusion.excludes_path("certs/SERVER.PEM")
    hidden_after_all = Exclusion(with_default_excludes(["!**/*.pem", "**/*.pem"]))
    assert hidden_after_all.excludes_path("certs/server.pem")


def test_printed_settings_mean_the_same_when_they_are_read_again() -> None:
    printed = with_default_excludes(["drafts/", "!**/ca.pem"])
    assert with_default_excludes(printed) == printed


def test_a_setting_can_show_an_ignored_directory_again_but_never_the_index() -> None:
    exclusion = Exclusion(["!build/", "!.dir2mcp/", "!.dir2mcp/**"])
    assert not exclusion.excludes_path("build/report.md")
    assert exclusion.excludes_path("dist/report.md")
    assert exclusion.excludes_path(".dir2mcp/secret.token")


def test_the_index_is_excluded_wherever_it_is_kept() -> None:
    exclusion = Exclusion([], state_paths=["/var/index/"])
    assert exclusion.excludes_path("var/index/meta.sqlite")
    assert not exclusion.excludes_path("lib/var/index/meta.sqlite")


def test_a_pattern_anchored_at_the_root_stays_there() -> None:
    exclusion = Exclusion(["private/**"])
    assert exclusion.excludes_path("private/a/b.md")
    assert not exclusion.excludes_path("public/private/a.md")


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=4), st.booleans())
def test_the_quick_look_at_a_name_never_misses_an_excluded_entry(
    patterns: list[str], names: list[str], is_directory: bool
) -> None:
    exclusion = Exclusion(patterns, secret_patterns=[])
    parent = "/".join(names[:-1])
    path = "/".join(names)
    reached = not parent or not exclusion.excludes_path(parent, is_directory=True)
    if reached and exclusion.excludes_entry(path, is_directory):
        assert exclusion.may_hide_entry(names[-1])


def test_the_quick_look_passes_most_names() -> None:
    for excludes in (DEFAULT_PATH_EXCLUDES, CONTRACT_EXCLUDES):
        exclusion = Exclusion(excludes)
        assert not any(map(exclusion.may_hide_entry, ["main.py", "README.md", "environment", "git", "x.pem.txt"]))


@pytest.mark.parametrize("pattern", ["(", "a{2000000}", "(?=look)", r"(a)\1", "[z-a]"])
def test_an_invalid_secret_pattern_is_named(pattern: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Exclusion(secret_patterns=["fine", pattern])
    assert pattern in raised.value.message


def test_configured_patterns_replace_the_defaults() -> None:
    exclusion = Exclusion(secret_patterns=[r"INTERNAL-\d{4}"])
    assert exclusion.secrets_in("a\nINTERNAL-1234\n") == [ScannerFinding("pattern 1", 2, "")]
    assert not exclusion.secrets_in(KEY_ID)
    assert not Exclusion(secret_patterns=[]).secrets_in(KEY_ID)


def test_configured_patterns_may_use_the_checked_groups_and_repeat_their_names() -> None:
    exclusion = Exclusion(secret_patterns=[r"pin=(?P<value>\w{8,})", r"pw=(?P<value>\w{8,})"])
    assert [match.rule for match in exclusion.secrets_in("pw=a8s7d6f5\npin=first_second")] == ["pattern 2"]


def test_a_quotation_left_open_in_one_pattern_does_not_swallow_the_next() -> None:
    exclusion = Exclusion(secret_patterns=[r"\Qa.b", r"\Qc\E", "zzz"])
    assert [match.rule for match in exclusion.secrets_in("zzz c a.b")] == ["pattern 1", "pattern 2", "pattern 3"]


def test_a_pattern_that_matches_nothing_at_all_ends() -> None:
    assert len(Exclusion(secret_patterns=["x*"]).secrets_in("a" * 1000)) == 100


def test_secrets_are_told_by_rule_and_line_in_the_order_of_lines() -> None:
    text = f"one\n{'-' * 50}\npassword url: amqp:" + f"//app:Zk3-9qq@mq.internal/\n\n{KEY_ID}\n{KEY_ID}"
    assert Exclusion().secrets_in(text) == [
        ScannerFinding("url-password", 3, ""),
        ScannerFinding("aws-access-key-id", 5, ""),
        ScannerFinding("aws-access-key-id", 6, ""),
    ]


def test_a_match_keeps_nothing_of_the_secret() -> None:
    [match] = Exclusion().secrets_in(f"key {KEY_ID}")
    assert not any(KEY_ID[start : start + 6] in repr(match) for start in range(len(KEY_ID) - 6))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_secret_is_found_in_the_bytes_of_any_usual_encoding(encoding: str) -> None:
    assert Exclusion().secrets_in(f"é\n{KEY_ID}\n".encode(encoding)) == [ScannerFinding("aws-access-key-id", 2, "")]


def test_a_secret_behind_binary_content_is_found() -> None:
    assert Exclusion().secrets_in(bytes(range(256)) * 100 + b"\xff\xfe " + KEY_ID.encode())


EXCLUSION = Exclusion()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([b"token = ", b"aws secret: ", b"://a:", b"@host", b"-----BEGIN PRIVATE KEY-----\n", b"sk-",
                             b"a1B2c3D4e5F6g7H8i9J0k1L2m3N4", b"Bearer ", b"\n", KEY_ID.encode()]),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_any_bytes_can_be_scanned(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    found = EXCLUSION.secrets_in(data)
    assert all(
        1 <= match.line <= data.count(b"\n") + 1 for match in found if not data.startswith((b"\xff\xfe", b"\xfe\xff"))
    )
    if b" " + KEY_ID.encode() in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        assert found


def test_a_large_text_full_of_near_misses_is_scanned_to_its_end() -> None:
    near_misses = (
        "token = parser.next_token_value_of_stream\nhttps:" + "//user:password@host/\nsk-circle-fade-dot-item-x\n"
    )
    text = near_misses * 20_000
    assert not EXCLUSION.secrets_in(text)
    assert EXCLUSION.secrets_in(text + KEY_ID) == [ScannerFinding("aws-access-key-id", 60_001, "")]
