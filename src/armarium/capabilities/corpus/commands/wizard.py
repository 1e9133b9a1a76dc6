"""Asks a person for what is missing. Keys are typed unseen; whatever is asked, a setting or a variable can answer."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from armarium.capabilities.corpus.commands.provider_keys import (
    ELEVENLABS_KEY,
    MISTRAL_KEY,
    MissingKey,
    substituted,
    take_keys,
)
from armarium.capabilities.corpus.commands.secret_store import Secret, SecretSources, Source, keychain_available
from armarium.capabilities.corpus.commands.settings import Dir2McpSettings
from armarium.capabilities.corpus.commands.settings_loader import Loaded, Where, load
from armarium.capabilities.corpus.commands.yaml_edit import set_values
from armarium.command_line.output import say
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings_loader import checked, read_yaml

_FIRST_LINES = """\
# Settings of dir2mcp for this directory. Everything left out has a default: `dir2mcp config print` shows them all.
# Keys do not belong here: write ${NAME}, and put the key into the environment, the keychain or .dir2mcp/secret.env.
version: 1
"""
_KEEPING = {
    "keychain": "in the keychain of this system",
    "file": "in a file only you can read",
    "env": "I set the variable myself",
    "session": "not at all, only for this start",
}


def supply_missing_keys(loaded: Loaded, *, interactive: bool) -> None:
    """Ask for keys that cannot be done without; where nobody can be asked, say how to give them."""
    for name in loaded.keys.missing:
        if not interactive:
            raise MissingKey(name)
        say(f"The settings ask for {name}, which is not set.")
        secret = _ask_key(name, loaded.sources)
        if secret is None:
            raise MissingKey(name)
        loaded.keys.supply(secret)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the file of settings."""

    file: Path
    changed: bool


def write_default_file(where: Where) -> Written:
    """A file to begin with, asking nothing; one that is there is only checked."""
    file = where.new_config_file()
    if file.exists():
        load(where)
        return Written(file, changed=False)
    key = f"\nmistral:\n  api_key: ${{{MISTRAL_KEY}}}\n" if os.environ.get(MISTRAL_KEY) else ""
    _write(file, _FIRST_LINES + key)
    return Written(file, changed=True)


def run_wizard(where: Where) -> Written:
    """Go through what a person may want to decide, and write the answers down."""
    file = where.new_config_file()
    text = _read(file)
    now = _current(file)
    say(f"Settings for {where.directory.absolute()}, kept in {file}. Enter keeps what stands in brackets.\n")
    changes = _ask_models(now)
    changes |= _ask_extraction(now)
    if _uses_mistral(changes):
        changes["mistral.api_key"] = f"${{{MISTRAL_KEY}}}"
    edited = set_values(text or _FIRST_LINES, {name: value for name, value in changes.items() if value is not None})
    _write(file, edited)
    # The rest of what the file says may be wrong, and is better found now than at the next start.
    loaded = load(where)
    names = [MISTRAL_KEY] if _uses_mistral(changes) else []
    names += (
        [ELEVENLABS_KEY] if changes["ingest.audio.mode"] != "off" and changes["stt.provider"] == "elevenlabs" else []
    )
    for name in names:
        _offer_key(name, loaded, file)
    return Written(file, changed=edited != text)


def _ask_models(now: Dir2McpSettings) -> dict[str, Any]:
    say("Who turns text into vectors? `local` needs neither key nor network.")
    embedding = _choose("embedding", ("local", "mistral", "openai"), now.embedding.provider, instead_of_auto="local")
    say("\nWho writes answers? `none` quotes the best sentences found.")
    chat = _choose("answers", ("none", "mistral", "openai"), now.chat.provider, instead_of_auto="none")
    changes: dict[str, Any] = {"embedding.provider": embedding, "chat.provider": chat}
    if "openai" in (embedding, chat):
        say("\nAny server that speaks OpenAI's API will do: Ollama, vLLM, llama.cpp.")
        changes["openai.base_url"] = _ask("address", now.openai.base_url)
        if embedding == "openai":
            changes["openai.embed_text_model"] = _ask_required("embedding model", now.openai.embed_text_model)
        if chat == "openai":
            changes["openai.chat_model"] = _ask_required("chat model", now.openai.chat_model)
    return changes


def _ask_extraction(now: Dir2McpSettings) -> dict[str, Any]:
    say("\nShall text in scanned PDFs and images be read (OCR), where a provider can?")
    reads = _choose("ocr", ("yes", "no"), "no" if now.ingest.images.mode == "off" else "yes")
    say("\nShall recordings be transcribed, where a provider can?")
    audio = _choose("transcription", ("auto", "off"), "off" if now.ingest.audio.mode == "off" else "auto")
    speech: str = now.stt.provider
    if audio != "off":
        speech = _choose("transcription by", ("mistral", "elevenlabs"), now.stt.provider)
    pdf_off = now.ingest.pdf.mode == "off"
    return {
        "ingest.pdf.mode": "off" if pdf_off else ("ocr" if reads == "yes" else "auto"),
        "ingest.images.mode": "ocr_auto" if reads == "yes" else "off",
        "ingest.audio.mode": audio,
        "stt.provider": speech,
    }


def _uses_mistral(changes: dict[str, Any]) -> bool:
    return "mistral" in (changes["embedding.provider"], changes["chat.provider"])


def _offer_key(name: str, loaded: Loaded, file: Path) -> None:
    found = loaded.sources.find(name, ask_keychain=True)
    if found is not None:
        say(f"\n{name} is known already (from {found.source}).")
        return
    say(f"\n{name} is not set. Enter skips it.")
    secret = _ask_key(name, loaded.sources)
    if secret is None or secret.source == "session":
        return
    if loaded.settings.secrets.provider not in ("auto", secret.source):
        # What is kept somewhere must be looked for there.
        _write(file, set_values(_read(file), {"secrets.provider": "auto"}))


def _ask_key(name: str, sources: SecretSources) -> Secret | None:
    """A key, typed unseen, and where to keep it; None if the person has none."""
    value = _masked(f"{name} (not shown): ").strip()
    if not value:
        return None
    ways = [way for way in _KEEPING if way != "keychain" or keychain_available()]
    say("Where shall it be kept?")
    for way in ways:
        say(f"  {way:<9} {_KEEPING[way]}")
    where = cast(Source, _choose("keep", ways, ways[0]))
    secret = sources.keep(name, value, where)
    if where == "env":
        say(f"Put this into your shell's profile: export {name}=...")
    return secret


def _choose(question: str, options: Sequence[str], now: str, *, instead_of_auto: str | None = None) -> str:
    default = instead_of_auto if now == "auto" and instead_of_auto else now
    while True:
        answer = _ask(f"{question} ({'/'.join(options)})", default).lower()
        fitting = [option for option in options if option == answer] or [
            option for option in options if answer and option.startswith(answer)
        ]
        if len(fitting) == 1:
            return fitting[0]
        say(f"Please answer one of: {', '.join(options)}")


def _ask_required(question: str, now: str | None) -> str:
    while not (answer := _ask(question, now or "")):
        say("There is no default for this one.")
    return answer


def _ask(question: str, default: str) -> str:
    shown = f" [{default}]" if default else ""
    try:
        return input(f"{question}{shown}: ").strip() or default
    except EOFError:
        raise ConfigError(
            "the questions were not answered", hint="dir2mcp config init --non-interactive asks none"
        ) from None


def _masked(prompt: str) -> str:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return ""


def _current(file: Path) -> Dir2McpSettings:
    if not file.exists():
        return Dir2McpSettings()
    values = read_yaml(file)
    take_keys(values, {})
    return checked(Dir2McpSettings, substituted(values, os.environ), source=str(file))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
