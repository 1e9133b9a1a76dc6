"""Setting a value in a settings file preserves everything else."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.corpus.commands.yaml_edit import set_values
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.loader import parse_yaml
from support.dir2mcp_command import TEMPLATE

names = st.sampled_from(["alpha", "beta", "gamma", "off", "x402"])
scalars = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["off", "no", "${KEY}", "# x"])
)
documents = st.recursive(
    scalars, lambda inner: st.dictionaries(names, inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=12
).filter(lambda value: isinstance(value, dict))
paths = st.lists(names, min_size=1, max_size=3)


def put(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    inner = values.get(first)
    new = put(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return values | {first: new}


@given(documents, paths, scalars, st.booleans())
def test_exactly_one_value_changes_whatever_the_file_looks_like(
    document: dict[str, Any], path: list[str], value: Any, on_one_line: bool
) -> None:
    text = yaml.safe_dump(document, default_flow_style=on_one_line, sort_keys=False, allow_unicode=True)
    before = parse_yaml(text)
    assert parse_yaml(set_values(text, {".".join(path): value})) == put(before, path, value)


def test_comments_order_and_spacing_stay() -> None:
    text = TEMPLATE.read_text()
    edited = set_values(text, {"ingest.pdf.mode": "auto", "stt.provider": "elevenlabs"})
    assert edited == text.replace("mode: ocr  ", "mode: auto  ").replace(
        "provider: mistral   ", "provider: elevenlabs   "
    )


def test_a_new_setting_goes_into_its_section_and_a_new_section_to_the_end() -> None:
    text = "version: 1  # of the form\n\nserver:\n    # where\n    listen: 127.0.0.1:0\n"
    edited = set_values(text, {"server.public": True, "embedding.provider": "local"})
    assert "# of the form" in edited
    assert "# where" in edited
    assert "\n    public: true\n    listen: 127.0.0.1:0\n" in edited
    assert edited.endswith("\nembedding:\n  provider: local\n")


@pytest.mark.parametrize(
    ("section", "written"),
    [
        ("chat:\n#  provider: mistral\n", "chat: {provider: none}\n#  provider: mistral\n"),
        ("chat:   # who\n", "chat: {provider: none}   # who\n"),
        ("chat: {provider: mistral}  # who\n", "chat: {provider: none}  # who\n"),
        ("chat: {provider: mistral,  # who\n  model: m}\n", "chat: {provider: none,  # who\n  model: m}\n"),
        ("chat: {model: m}  # who\n", "chat: {model: m, provider: none}  # who\n"),
    ],
)
def test_comments_outside_a_section_that_is_empty_or_on_one_line_stay(section: str, written: str) -> None:
    before, after = "# mine\nversion: 1\n", "# and so on\nrag:\n  k_default: 7  # seven\n"
    assert set_values(before + section + after, {"chat.provider": "none"}) == before + written + after


def test_an_empty_file_and_one_of_comments_take_their_first_setting() -> None:
    assert parse_yaml(set_values("", {"a.b": 1})) == {"a": {"b": 1}}
    edited = set_values("# nothing yet", {"a.b": 1})
    assert edited.startswith("# nothing yet\n")
    assert parse_yaml(edited) == {"a": {"b": 1}}


@pytest.mark.parametrize("text", ["- a", "a: [", "just text"])
def test_a_text_that_is_not_a_settings_file_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        set_values(text, {"a.b": 1})
