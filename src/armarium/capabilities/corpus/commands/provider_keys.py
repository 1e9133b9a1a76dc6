"""The API keys that the settings require, their sources, and which are missing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from pydantic import SecretStr

from armarium.capabilities.corpus.commands.secret_store import Secret, SecretStore
from armarium.capabilities.corpus.commands.settings import Dir2McpSettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import referenced_file

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


def value_at(values: Any, steps: Iterable[str]) -> Any:
    """The value below nested mappings; None if there is none."""
    for step in steps:
        values = cast(dict[str, Any], values).get(step) if isinstance(values, dict) else None
    return values


def extract_keys(values: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Secret | str]:
    """Remove the keys from the values, so that no error message can quote a key. Returns them by setting: the key
    itself, or its name if the setting refers to a variable."""
    extracted: dict[str, Secret | str] = {}
    for setting in KEY_SETTINGS:
        *parents, last = setting.split(".")
        section = value_at(values, parents)
        configured = cast(dict[str, Any], section).pop(last, None) if isinstance(section, dict) else None
        if configured in (None, ""):
            continue
        if referenced_file(configured):
            raise ConfigError(
                f"`{setting}`: a file cannot be named here", hint="put the key into the file of `secrets.file.path`"
            )
        variable = f"DIR2MCP_{setting.upper().replace('.', '__')}"
        if reference := _REFERENCE.fullmatch(str(configured)):
            extracted[setting] = reference[1]
        elif variable in environ:
            extracted[setting] = Secret(_default_name(setting), str(configured), "env", variable)
        else:
            extracted[setting] = Secret(_default_name(setting), str(configured), "file", "settings")
    return extracted


def _default_name(setting: str) -> str:
    return KEY_SETTINGS[setting] or setting.upper().replace(".", "_")


class ProviderKeys:
    def __init__(self, settings: Dir2McpSettings, configured: Mapping[str, Secret | str], secrets: SecretStore) -> None:
        self._configured = configured
        self._secrets = secrets
        self._needed = _needed_settings(settings, configured)
        found = {setting: self._find(setting) for setting in KEY_SETTINGS}
        self.found = {setting: secret for setting, secret in found.items() if secret is not None}

    @property
    def missing(self) -> list[str]:
        """The names of required keys that were not found, without duplicates."""
        names = [self._name_of(setting) for setting in self._needed if setting not in self.found]
        return list(dict.fromkeys(names))

    def _name_of(self, setting: str) -> str:
        """The name of the key in the secret store."""
        configured = self._configured.get(setting)
        return configured if isinstance(configured, str) else _default_name(setting)

    def add(self, secret: Secret) -> None:
        """Use the key for all settings that lack it."""
        for setting in KEY_SETTINGS:
            if setting not in self.found and self._name_of(setting) == secret.name:
                self.found[setting] = secret

    def apply_to(self, settings: Dir2McpSettings) -> Dir2McpSettings:
        """A copy of the settings that contains the keys."""
        for setting, secret in self.found.items():
            settings = _with_key(settings, setting.split("."), SecretStr(secret.value))
        return settings

    def _find(self, setting: str) -> Secret | None:
        configured = self._configured.get(setting)
        literal = configured if isinstance(configured, Secret) else None
        if literal is not None and literal.source == "env":
            return literal
        for name in (configured, KEY_SETTINGS[setting]):
            secret = self._secrets.find(name, ask_keychain=setting in self._needed) if isinstance(name, str) else None
            # The environment overrides the settings file, which overrides all other sources.
            if secret is not None and (literal is None or secret.source == "env"):
                return secret
        return literal


def _with_key(section: Any, steps: list[str], key: SecretStr) -> Any:
    first, *rest = steps
    inner = _with_key(getattr(section, first), rest, key) if rest else key
    return section.model_copy(update={first: inner})


def _needed_settings(settings: Dir2McpSettings, configured: Collection[str]) -> list[str]:
    """The settings whose keys the configured features require."""
    providers = (settings.embedding.provider, settings.chat.provider)
    speech = settings.stt.provider if settings.ingest.audio.mode == "on" else None
    mistral = (
        "mistral" in providers
        or ("mistral.api_key" in configured and "auto" in providers)
        or settings.ingest.images.mode == "ocr_on"
        or speech == "mistral"
    )
    elevenlabs = speech == "elevenlabs"
    return ["mistral.api_key"] * mistral + ["stt.elevenlabs.api_key"] * elevenlabs
