"""The API keys that the settings require, their sources, and which are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import SecretStr

from armarium.capabilities.corpus.commands.secret_store import Secret, SecretStore
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
"""The settings that hold a key, with the default name of the key. A custom endpoint has no default, so that it never
receives a key that was not configured for it."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class MissingKey(ConfigError):
    """A required key was not found."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Missing {name}", hint=f"Set env: {name}=...\nOr run: dir2mcp config init")
        self.name = name


@dataclass(frozen=True, slots=True)
class ConfiguredKey:
    """The configured value of a key: the key itself, or its name."""

    literal: str | None = None
    name: str | None = None
    in_environment: bool = False


def expand_variables(value: Any, environ: Mapping[str, str]) -> Any:
    """Replace each `${NAME}` in the strings of the value; raises `ConfigError` if a variable is not set."""
    if isinstance(value, dict):
        return {name: expand_variables(inner, environ) for name, inner in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [expand_variables(inner, environ) for inner in cast(list[Any], value)]
    return _REFERENCE.sub(lambda found: _variable(found[1], environ), value) if isinstance(value, str) else value


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise ConfigError(f"the settings refer to ${{{name}}}, which is not set", hint=f"Set env: {name}=...")
    return environ[name]


def extract_keys(values: dict[str, Any], environ: Mapping[str, str]) -> dict[str, ConfiguredKey]:
    """Remove the keys from the values and return them, so that no error message can quote a key."""
    extracted: dict[str, ConfiguredKey] = {}
    for setting in KEY_SETTINGS:
        *parents, last = setting.split(".")
        section: Any = values
        for step in parents:
            section = cast(dict[str, Any], section).get(step) if isinstance(section, dict) else None
        configured = cast(dict[str, Any], section).pop(last, None) if isinstance(section, dict) else None
        if configured in (None, ""):
            continue
        text = str(configured)
        reference = _REFERENCE.fullmatch(text)
        given_by_variable = f"DIR2MCP_{setting.upper().replace('.', '__')}" in environ
        extracted[setting] = (
            ConfiguredKey(name=reference[1]) if reference else ConfiguredKey(text, in_environment=given_by_variable)
        )
    return extracted


class ProviderKeys:
    """The keys of the configured providers."""

    def __init__(
        self, settings: Dir2McpSettings, configured: Mapping[str, ConfiguredKey], secrets: SecretStore
    ) -> None:
        self._configured = configured
        self._secrets = secrets
        self._needed = _needed_settings(settings, configured)
        self.found: dict[str, Secret] = {}
        for setting in KEY_SETTINGS:
            if (secret := self._find(setting)) is not None:
                self.found[setting] = secret

    @property
    def missing(self) -> list[str]:
        """The names of required keys that were not found, without duplicates."""
        names = [self.name_of(setting) for setting in self._needed if setting not in self.found]
        return list(dict.fromkeys(names))

    def name_of(self, setting: str) -> str:
        """The name of the key in the secret store."""
        configured = self._configured.get(setting)
        return (configured.name if configured else None) or KEY_SETTINGS[setting] or setting.upper().replace(".", "_")

    def add(self, secret: Secret) -> None:
        """Use the key for all settings that lack it."""
        for setting in KEY_SETTINGS:
            if setting not in self.found and self.name_of(setting) == secret.name:
                self.found[setting] = secret

    def apply_to(self, settings: Dir2McpSettings) -> Dir2McpSettings:
        """A copy of the settings that contains the keys."""
        for setting, secret in self.found.items():
            settings = _with_key(settings, setting.split("."), SecretStr(secret.value))
        return settings

    def _find(self, setting: str) -> Secret | None:
        configured, default = self._configured.get(setting, ConfiguredKey()), KEY_SETTINGS[setting]
        if configured.literal is not None and configured.in_environment:
            return Secret(
                self.name_of(setting), configured.literal, "env", "DIR2MCP_" + setting.upper().replace(".", "__")
            )
        required = setting in self._needed
        for name in filter(None, (configured.name, default)):
            secret = self._secrets.find(name, ask_keychain=required)
            # The environment overrides the settings file, which overrides all other sources.
            if secret is not None and (configured.literal is None or secret.source == "env"):
                return secret
        return (
            None
            if configured.literal is None
            else Secret(self.name_of(setting), configured.literal, "file", "settings")
        )


def _with_key(section: Any, steps: list[str], key: SecretStr) -> Any:
    first, *rest = steps
    inner = _with_key(getattr(section, first), rest, key) if rest else key
    return section.model_copy(update={first: inner})


def _needed_settings(settings: Dir2McpSettings, configured: Mapping[str, ConfiguredKey]) -> list[str]:
    """The settings whose keys the configured features require."""
    providers = (settings.embedding.provider, settings.chat.provider)
    transcribes = settings.ingest.audio.mode == "on"
    mistral = (
        "mistral" in providers
        or ("mistral.api_key" in configured and "auto" in providers)
        or settings.ingest.images.mode == "ocr_on"
        or (transcribes and settings.stt.provider == "mistral")
    )
    elevenlabs = transcribes and settings.stt.provider == "elevenlabs"
    return [
        name for name, needed in {"mistral.api_key": mistral, "stt.elevenlabs.api_key": elevenlabs}.items() if needed
    ]
