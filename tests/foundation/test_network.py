"""The setting `network`: to which hosts the process may connect."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pydantic import TypeAdapter, ValidationError

from armarium.foundation.security.network import permits, restrict_network
from armarium.foundation.settings.model import NetworkRule

RULE = TypeAdapter(NetworkRule)


@pytest.fixture(autouse=True)
def unrestricted() -> Generator[None]:
    yield
    restrict_network("on")


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        (True, "on"),
        (False, "off"),
        ("off", "off"),
        (["api.mistral.ai"], ("api.mistral.ai",)),
        ("api.mistral.ai, *.example.org", ("api.mistral.ai", "*.example.org")),
    ],
)
def test_the_setting_may_be_written_as_yaml_and_as_a_variable(written: object, rule: object) -> None:
    assert RULE.validate_python(written) == rule


@pytest.mark.parametrize("wrong", [["https://api.mistral.ai"], ["a/b"], [""], 3, None])
def test_anything_else_is_an_error(wrong: object) -> None:
    with pytest.raises(ValidationError) as refused:
        RULE.validate_python(wrong)
    # One error, about the setting itself: with one for each form of the value, a message would name only the first.
    (mistake,) = refused.value.errors()
    assert mistake["loc"] == ()
    assert "on, off or a list of hosts" in mistake["msg"]


def test_off_permits_only_this_machine() -> None:
    restrict_network("off")
    for here in ("http://127.0.0.1:11434/v1", "http://localhost", "http://[::1]:80/x"):
        assert permits(here)
    for elsewhere in (
        "https://api.mistral.ai/v1",
        "http://localhost.example.org",
        "http://10.0.0.1",
        "http://[",
        "x",
        "",
    ):
        assert not permits(elsewhere)


def test_a_list_permits_its_hosts_and_their_subdomains_only_with_a_wildcard() -> None:
    restrict_network(["API.mistral.ai", "*.example.org"])
    for allowed in (
        "https://api.mistral.ai/v1",
        "https://Api.Mistral.AI.:443",
        "http://a.b.example.org",
        "http://localhost",
    ):
        assert permits(allowed)
    for excluded in (
        "https://mistral.ai",
        "https://x.api.mistral.ai",
        "https://example.org",
        "https://example.org.evil.io",
    ):
        assert not permits(excluded)


def test_on_permits_every_host() -> None:
    restrict_network("off")
    restrict_network("on")
    assert permits("https://anywhere.example")
