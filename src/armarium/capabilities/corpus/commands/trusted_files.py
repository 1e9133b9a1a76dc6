"""The files in a directory whose content applies only after its user has confirmed it: settings and keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.commands.secret_store import read_secret_file
from armarium.capabilities.corpus.commands.settings import Dir2McpSettings, SecretFileSettings, plain_values
from armarium.command_line.trust import require_regular
from armarium.foundation.security.trust import Confirmable, Confirmations, sensitive_settings
from armarium.foundation.settings.loader import read_yaml

CONFIG_FILE = ".dir2mcp.yaml"

HARMLESS = frozenset({
    "audit.enabled", "chunking", "limits", "network", "rag", "telemetry.log_level", "version",
    "ingest.archives", "ingest.audio", "ingest.follow_symlinks", "ingest.gitignore", "ingest.images",
    "ingest.max_file_mb_by_type", "ingest.pdf", "ingest.watch", "ingest.isolation=required",
    "chat.provider=none", "embedding.provider=local",
    "mistral.chat_model", "mistral.embed_code_model", "mistral.embed_text_model", "mistral.ocr_model",
    "openai.embed_code_model", "openai.embed_text_model", "rerank.model",
    "stt.elevenlabs.model", "stt.elevenlabs.timestamps", "stt.mistral.model", "stt.mistral.timestamps",
    "secrets.file.mode", "secrets.provider=env", "secrets.provider=file", "secrets.provider=session",
    "security.path_excludes",
    "server.mcp_path", "server.protocol_version", "server.session_inactivity_timeout", "server.session_max_lifetime",
})  # fmt: skip
"""Settings and values that neither send, nor spend, nor listen, nor execute. All others must be confirmed."""


@cache
def _defaults() -> Mapping[str, Any]:
    return plain_values(Dir2McpSettings())


def settings_to_confirm(file: Path, values: Mapping[str, Any]) -> Confirmable:
    return Confirmable(file, sensitive_settings(values, _defaults(), HARMLESS), file.parent)


def keys_to_confirm(file: Path, directory: Path) -> Confirmable:
    """The keys in a secret file of a directory: a foreign key would send text on behalf of somebody else."""
    return Confirmable(file, {f"{name} (key)": value for name, value in read_secret_file(file).items()}, directory)


def is_within(file: Path, directory: Path) -> bool:
    return Path(os.path.abspath(file)).is_relative_to(os.path.abspath(directory))


def read_settings_file(file: Path, *, named: bool) -> dict[str, Any]:
    """The values of a settings file. Unless the user named it, a link that leads out of its directory is refused."""
    if not named:
        require_regular(file)
    return read_yaml(file)


def remember(found: Confirmable) -> None:
    """Record a file that this program wrote for its user."""
    if found.values:
        Confirmations().add(found.path, found.values)


def files_to_confirm(directory: Path) -> list[Confirmable]:
    """The settings and keys in a directory."""
    file, secrets = directory / CONFIG_FILE, directory / SecretFileSettings().path
    found = [settings_to_confirm(file, read_settings_file(file, named=False))] if os.path.isfile(file) else []
    return [*found, keys_to_confirm(secrets, directory)]
