"""Which keys the settings ask for, where each was found, and which are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import SecretStr

from armarium.capabilities.corpus.commands.secret_store import Secret, SecretSources
from armarium.capabilities.corpus.commands.settings import Dir2McpSettings
from armarium.foundation.errors import ConfigError

MISTRAL_KEY = "MISTRAL_API_KEY"
ELEVENLABS_KEY = "ELEVENLABS_API_KEY"

KEY_SETTINGS: dict[str, str | None] = {
    "mistral.api_key": MISTRAL_KEY,
    "stt.mistral.api_key": MISTRAL_KEY,
    "stt.elevenlabs.api_key": ELEVENLABS_KEY,
    "openai.api_key": None,
    "rerank.api_key": None,
}
"""Settings that hold a key, and the name it is looked for under when the file names none. An endpoint of one's own
gets no key that was not named for it."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class MissingKey(ConfigError):
    """The settings need a key that is nowhere."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Missing {name}", hint=f"Set env: {name}=...\nOr run: dir2mcp config init")
        self.name = name


@dataclass(frozen=True, slots=True)
class WrittenKey:
    """What a file or a variable says about a key: the key itself, or the name of one."""

    literal: str | None = None
    name: str | None = None
    in_environment: bool = False


def substituted(value: Any, environ: Mapping[str, str]) -> Any:
    """The value with every `${NAME}` in its strings replaced; a name that is not set is an error."""
    if isinstance(value, dict):
        return {name: substituted(inner, environ) for name, inner in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [substituted(inner, environ) for inner in cast(list[Any], value)]
    return _REFERENCE.sub(lambda found: _variable(found[1], environ), value) if isinstance(value, str) else value


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise ConfigError(f"the settings refer to ${{{name}}}, which is not set", hint=f"Set env: {name}=...")
    return environ[name]


def take_keys(values: dict[str, Any], environ: Mapping[str, str]) -> dict[str, WrittenKey]:
    """Take what is said about keys out of the values, so that no error message can quote a key."""
    taken: dict[str, WrittenKey] = {}
    for setting in KEY_SETTINGS:
        *parents, last = setting.split(".")
        section: Any = values
        for step in parents:
            section = cast(dict[str, Any], section).get(step) if isinstance(section, dict) else None
        written = cast(dict[str, Any], section).pop(last, None) if isinstance(section, dict) else None
        if written in (None, ""):
            continue
        text = str(written)
        whole = _REFERENCE.fullmatch(text)
        given_by_variable = f"DIR2MCP_{setting.upper().replace('.', '__')}" in environ
        taken[setting] = WrittenKey(name=whole[1]) if whole else WrittenKey(text, in_environment=given_by_variable)
    return taken


class Keys:
    """The keys behind the settings."""

    def __init__(self, settings: Dir2McpSettings, written: Mapping[str, WrittenKey], sources: SecretSources) -> None:
        self._written = written
        self._sources = sources
        self._needed = _needed_settings(settings, written)
        self.found: dict[str, Secret] = {}
        for setting in KEY_SETTINGS:
            if (secret := self._find(setting)) is not None:
                self.found[setting] = secret

    @property
    def missing(self) -> list[str]:
        """Names of keys that cannot be done without, each once."""
        names = [self.name_of(setting) for setting in self._needed if setting not in self.found]
        return list(dict.fromkeys(names))

    def name_of(self, setting: str) -> str:
        """What the key is called where keys are kept."""
        written = self._written.get(setting)
        return (written.name if written else None) or KEY_SETTINGS[setting] or setting.upper().replace(".", "_")

    def supply(self, secret: Secret) -> None:
        """A person gave the key."""
        for setting in KEY_SETTINGS:
            if setting not in self.found and self.name_of(setting) == secret.name:
                self.found[setting] = secret

    def put_into(self, settings: Dir2McpSettings) -> Dir2McpSettings:
        """The settings with the keys in their places."""
        for setting, secret in self.found.items():
            settings = _with_key(settings, setting.split("."), SecretStr(secret.value))
        return settings

    def _find(self, setting: str) -> Secret | None:
        written, usual = self._written.get(setting, WrittenKey()), KEY_SETTINGS[setting]
        if written.literal is not None and written.in_environment:
            return Secret(
                self.name_of(setting), written.literal, "env", "DIR2MCP_" + setting.upper().replace(".", "__")
            )
        required = setting in self._needed
        for name in filter(None, (written.name, usual)):
            secret = self._sources.find(name, ask_keychain=required)
            # The environment goes before what a file says, and a file before every other place.
            if secret is not None and (written.literal is None or secret.source == "env"):
                return secret
        return None if written.literal is None else Secret(self.name_of(setting), written.literal, "file", "settings")


def _with_key(section: Any, steps: list[str], key: SecretStr) -> Any:
    first, *rest = steps
    inner = _with_key(getattr(section, first), rest, key) if rest else key
    return section.model_copy(update={first: inner})


def _needed_settings(settings: Dir2McpSettings, written: Mapping[str, WrittenKey]) -> list[str]:
    """Settings of keys without which what was asked for cannot work."""
    providers = (settings.embedding.provider, settings.chat.provider)
    transcribes = settings.ingest.audio.mode == "on"
    mistral = (
        "mistral" in providers
        or ("mistral.api_key" in written and "auto" in providers)
        or settings.ingest.images.mode == "ocr_on"
        or (transcribes and settings.stt.provider == "mistral")
    )
    elevenlabs = transcribes and settings.stt.provider == "elevenlabs"
    return [
        name for name, needed in {"mistral.api_key": mistral, "stt.elevenlabs.api_key": elevenlabs}.items() if needed
    ]
