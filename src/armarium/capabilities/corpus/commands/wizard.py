"""The interactive setup: asks for settings and keys, and writes `.dir2mcp.yaml`."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from armarium.capabilities.corpus.commands.provider_keys import (
    ELEVENLABS_KEY,
    MISTRAL_KEY,
    MissingKey,
    expand_variables,
    extract_keys,
)
from armarium.capabilities.corpus.commands.secret_store import Secret, SecretSource, SecretStore, keychain_available
from armarium.capabilities.corpus.commands.settings import Dir2McpSettings
from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings, Location, load
from armarium.capabilities.corpus.commands.trusted_files import (
    keys_to_confirm,
    read_settings_file,
    remember,
    settings_to_confirm,
)
from armarium.capabilities.corpus.commands.yaml_edit import set_values
from armarium.command_line.output import say
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.loader import checked, read_yaml

_DEFAULT_FILE = """\
# Settings of dir2mcp for this directory. `dir2mcp config print` shows all settings with their defaults.
# Do not store keys here: write ${NAME}, and set the key in the environment, the keychain or .dir2mcp/secret.env.
version: 1
"""
_STORAGE_OPTIONS = {
    "keychain": "the keychain of this system",
    "file": "a file that only you can read",
    "env": "you set the variable yourself",
    "session": "not stored, only for this run",
}


def supply_missing_keys(loaded: LoadedSettings, *, interactive: bool) -> None:
    """Ask for required keys that are missing; raises `MissingKey` if they are not entered."""
    for name in loaded.keys.missing:
        if not interactive:
            raise MissingKey(name)
        say(f"The settings require {name}, which is not set.")
        secret = _ask_key(name, loaded.secrets) if loaded.settings.secrets.provider != "env" else None
        if secret is None:
            raise MissingKey(name)
        loaded.keys.add(secret)


def write_default_file(location: Location) -> tuple[Path, bool]:
    """Create a default settings file, or validate the existing one. Returns it, and whether it was changed."""
    file = location.config_file_to_write()
    if file.exists():
        load(location)
        return file, False
    key = f"\nmistral:\n  api_key: ${{{MISTRAL_KEY}}}\n" if os.environ.get(MISTRAL_KEY) else ""
    _write(file, _DEFAULT_FILE + key)
    remember(settings_to_confirm(file, read_yaml(file)))
    return file, True


def run_wizard(location: Location) -> tuple[Path, bool]:
    """Ask for the settings, and write them to the settings file. Returns it, and whether it was changed."""
    file = location.config_file_to_write()
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if file.exists() and location.config is None:
        location.require_trust(settings_to_confirm(file, read_settings_file(file, named=False)))
    current = _current_settings(file)
    say(
        f"Settings for {location.directory.absolute()}, stored in {file}.\n"
        "Press Enter to accept the value in brackets.\n"
    )
    changes = _ask_models(current) | _ask_extraction(current)
    uses_mistral = "mistral" in (changes["embedding.provider"], changes["chat.provider"])
    if uses_mistral:
        changes["mistral.api_key"] = f"${{{MISTRAL_KEY}}}"
    edited = set_values(text or _DEFAULT_FILE, changes)
    _write(file, edited)
    remember(settings_to_confirm(file, read_yaml(file)))
    # Validates the rest of the file as well.
    loaded = load(location)
    if uses_mistral:
        _offer_key(MISTRAL_KEY, loaded)
    if changes["ingest.audio.mode"] != "off" and changes["stt.provider"] == "elevenlabs":
        _offer_key(ELEVENLABS_KEY, loaded)
    return file, edited != text


def _ask_models(current: Dir2McpSettings) -> dict[str, Any]:
    say("Which provider computes embeddings? `local` needs neither a key nor a network.")
    embedding = _choose("embedding", ("local", "mistral", "openai"), current.embedding.provider)
    say("\nWhich provider writes answers? `none` quotes the best sentences found.")
    chat = _choose("answers", ("none", "mistral", "openai"), current.chat.provider)
    changes: dict[str, Any] = {"embedding.provider": embedding, "chat.provider": chat}
    if "openai" in (embedding, chat):
        say("\nAny server with an OpenAI-compatible API works: Ollama, vLLM, llama.cpp.")
        changes["openai.base_url"] = _ask("address", current.openai.base_url)
        if embedding == "openai":
            changes["openai.embed_text_model"] = _ask_required("embedding model", current.openai.embed_text_model)
        if chat == "openai":
            changes["openai.chat_model"] = _ask_required("chat model", current.openai.chat_model)
    return changes


def _ask_extraction(current: Dir2McpSettings) -> dict[str, Any]:
    say("\nRead text in scanned PDFs and images (OCR), if a provider supports it?")
    ocr = _choose("ocr", ("yes", "no"), "no" if current.ingest.images.mode == "off" else "yes")
    say("\nTranscribe recordings, if a provider supports it?")
    audio = _choose("transcription", ("auto", "off"), current.ingest.audio.mode)
    speech: str = current.stt.provider
    if audio != "off":
        speech = _choose("transcription by", ("mistral", "elevenlabs"), current.stt.provider)
    pdf = "ocr" if ocr == "yes" else "auto"
    return {
        "ingest.pdf.mode": "off" if current.ingest.pdf.mode == "off" else pdf,
        "ingest.images.mode": "ocr_auto" if ocr == "yes" else "off",
        "ingest.audio.mode": audio,
        "stt.provider": speech,
    }


def _offer_key(name: str, loaded: LoadedSettings) -> None:
    found = loaded.secrets.find(name, ask_keychain=True)
    if found is not None:
        say(f"\n{name} is already set (from {found.source}).")
        return
    match loaded.settings.secrets.provider:
        case "env":
            say(f"\n{name} is not set, and secrets.provider is env: keys are not stored. {_shell_line(name)}")
        case "session":
            say(f"\n{name} is not set, and secrets.provider is session: `dir2mcp up` asks for it at each start.")
        case _:
            say(f"\n{name} is not set. Press Enter to skip it.")
            _ask_key(name, loaded.secrets)


def _shell_line(name: str) -> str:
    return f"Add this line to your shell profile: export {name}=..."


def _ask_key(name: str, secrets: SecretStore) -> Secret | None:
    """Ask for a key without echo, and store it where the settings say; None if none is entered."""
    value = ""
    with suppress(EOFError):
        value = getpass.getpass(f"{name} (not shown): ").strip()
    if not value:
        return None
    provider = secrets.settings.provider
    source = _ask_storage() if provider == "auto" else provider
    secret = secrets.store(name, value, source)
    if source == "file":
        remember(keys_to_confirm(secrets.file, secrets.file.parent))
    if source == "env":
        say(_shell_line(name))
    return secret


def _ask_storage() -> SecretSource:
    options = [option for option in _STORAGE_OPTIONS if option != "keychain" or keychain_available()]
    say("Where should it be stored?")
    for option in options:
        say(f"  {option:<9} {_STORAGE_OPTIONS[option]}")
    return cast(SecretSource, _choose("store", options, options[0]))


def _choose(question: str, options: Sequence[str], current: str) -> str:
    """Ask for one of the options, or its beginning. The default is the current one, or the first."""
    default = current if current in options else options[0]
    while True:
        answer = _ask(f"{question} ({'/'.join(options)})", default).lower()
        matches = [option for option in options if option == answer] or [
            option for option in options if answer and option.startswith(answer)
        ]
        if len(matches) == 1:
            return matches[0]
        say(f"Please answer one of: {', '.join(options)}")


def _ask_required(question: str, current: str | None) -> str:
    while not (answer := _ask(question, current or "")):
        say("This value is required.")
    return answer


def _ask(question: str, default: str) -> str:
    shown = f" [{default}]" if default else ""
    try:
        return input(f"{question}{shown}: ").strip() or default
    except EOFError:
        raise ConfigError(
            "the setup was not completed",
            hint="to set up without questions, run: dir2mcp config init --non-interactive",
        ) from None


def _current_settings(file: Path) -> Dir2McpSettings:
    if not file.exists():
        return Dir2McpSettings()
    values = read_yaml(file)
    extract_keys(values, {})
    return checked(Dir2McpSettings, expand_variables(values, os.environ), source=str(file))


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
