"""Credentials are found, and text that only looks like one is not reported."""

from __future__ import annotations

import base64
import random
import sysconfig
from functools import cache
from pathlib import Path

import pytest
import yaml

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.secret_patterns import (
    DEFAULT_RULES,
    is_made_up,
    is_real_host,
    is_real_password,
    is_scrambled,
)

SAMPLES = Path(__file__).parent / "secret_corpus"
CUT = "¦"
CONTRACT_PATTERNS = [
    r"AKIA[0-9A-Z]{16}",
    r"(?i)aws(.{0,20})?secret|([0-9a-zA-Z/+=]{40})",
    r"(?i)(?:authorization\s*[:=]\s*bearer\s+|(?:access|id|refresh)_token\s*[:=]\s*)"
    r"[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"(?i)token\s*[:=]\s*[A-Za-z0-9_.-]{20,}",
    r"sk_[a-z0-9]{32}|api_[A-Za-z0-9]{32}",
]
"""As the contract's configuration template has them."""


def positives() -> list[tuple[str, str]]:
    by_rule: dict[str, list[str]] = yaml.safe_load((SAMPLES / "positive.yaml").read_text())
    return [(rule, sample.replace(CUT, "")) for rule, samples in by_rule.items() for sample in samples]


def negatives() -> dict[str, str]:
    return yaml.safe_load((SAMPLES / "negative.yaml").read_text())


@cache
def default_exclusion() -> Exclusion:
    return Exclusion()


def rules_found(text: str) -> set[str]:
    return {match.rule for match in default_exclusion().secrets_in(text)}


def test_no_sample_stands_in_the_repository_as_a_whole() -> None:
    whole = default_exclusion().secrets_in((SAMPLES / "positive.yaml").read_bytes())
    assert whole == []


def test_every_default_rule_has_a_sample() -> None:
    assert {rule for rule, _ in positives()} == {rule.name for rule in DEFAULT_RULES}


@pytest.mark.parametrize(("rule", "sample"), positives())
def test_a_credential_is_found_by_its_rule(rule: str, sample: str) -> None:
    assert rule in rules_found(sample)
    assert rule in rules_found(f"some text before\n\n{sample}\nand after")


@pytest.mark.parametrize("about", negatives())
def test_what_only_looks_like_a_credential_is_left_alone(about: str) -> None:
    assert rules_found(negatives()[about]) == set()


def test_precision_and_recall_on_the_samples_are_complete() -> None:
    found = [bool(rules_found(sample)) for _, sample in positives()]
    mistaken = [about for about, text in negatives().items() if rules_found(text)]
    assert sum(found) / len(found) == 1.0
    assert mistaken == []


def test_generated_files_without_credentials_are_left_alone() -> None:
    choose = random.Random(7)
    image = base64.encodebytes(choose.randbytes(200_000)).decode()
    one_line_image = base64.b64encode(choose.randbytes(200_000)).decode()
    hashes = "\n".join(f"{choose.getrandbits(256):064x}  file{number}.txt" for number in range(2000))
    minified = ";".join(
        f'function {choose.choice("abcdef")}{number}(e,t){{return e.token=t["{number}"],e.k{number}||"#{number:06x}"}}'
        for number in range(3000)
    )
    lock = "\n".join(
        f'"node_modules/p{number}": {{ "integrity": "sha512-{base64.b64encode(choose.randbytes(64)).decode()}" }},'
        for number in range(2000)
    )
    for text in (image, f"<img src='data:image/png;base64,{one_line_image}'>", hashes, minified, lock):
        assert rules_found(text) == set()


def test_at_most_one_in_a_hundred_files_of_the_standard_library_is_excluded() -> None:
    files = [
        file for file in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")) if "site-packages" not in file.parts
    ]
    excluded = [file.name for file in files if default_exclusion().secrets_in(file.read_bytes())]
    assert len(files) > 500
    assert len(excluded) <= len(files) / 100, excluded


def test_the_contracts_own_patterns_load_and_find_what_they_say() -> None:
    exclusion = Exclusion(secret_patterns=CONTRACT_PATTERNS)
    assert [match.rule for match in exclusion.secrets_in("AKIA" + "ABCDEFGHIJKLMNOP")] == ["pattern 1"]
    assert [match.rule for match in exclusion.secrets_in("9fceb02d0ae598e95dc970b74767f19372d61af8")] == ["pattern 2"]
    assert exclusion.secrets_in("token: " + "a" * 20)
    assert not exclusion.secrets_in("token: " + "a" * 19)


def test_whatever_the_contracts_anchored_patterns_find_in_our_samples_the_defaults_find_too() -> None:
    anchored = Exclusion(secret_patterns=[CONTRACT_PATTERNS[0], *CONTRACT_PATTERNS[2:]])
    for _, sample in positives():
        assert not anchored.secrets_in(sample) or default_exclusion().secrets_in(sample)


@pytest.mark.parametrize(
    "value", ["next_token_value", "settings.access.provider", "CamelCaseNameOfAClass", "HTTPHeader2"]
)
def test_a_name_is_not_made_up(value: str) -> None:
    assert not is_made_up(value)


@pytest.mark.parametrize("value", ["a1b2c3d4e5", "abcdefghijklmnopqrst", "xK9.mQ2-7", "AbCdEfGhIjKl"])
def test_what_has_no_words_is_made_up(value: str) -> None:
    assert is_made_up(value)


def test_letters_of_both_cases_without_words_are_scrambled() -> None:
    documented = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
    assert all(map(is_scrambled, [documented, "je7MtGbClwBF2Zp9Utk" + "h3yCo8nvbLwmQ4rT1xVzA"]))
    commit = "9fceb02d0ae598e95dc970b74767f19372d61af8"
    path, name = "src/Main/Java/Company/Project/Module/Key", "getTheSecretKeyFromTheEnvironmentOrFiles"
    assert not any(map(is_scrambled, [commit, commit.upper(), path, name, "X" + "x" * 39]))


def test_placeholders_are_no_passwords_and_examples_no_hosts() -> None:
    assert not any(map(is_real_password, ["password", "YOUR_PASSWORD", "xxxxx", "****", "{pw}", "$PW", "changeme"]))
    assert all(map(is_real_password, ["hunter2", "Password123", "tr0ub4dor&3"]))
    assert not any(map(is_real_host, ["example.com", "www.example.org", "host", "db.test"]))
    assert all(map(is_real_host, ["localhost", "db.internal", "10.0.0.1", "exampleshop.com"]))
