"""The settings of a whole server: the core's, and a section for each capability."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from armarium.assembly import MANIFESTS
from armarium.foundation.settings.model import CoreSettings
from armarium.manifest import Manifest

_sections: dict[str, Any] = {manifest.name: (manifest.settings() | None, None) for manifest in MANIFESTS}
Settings: type[CoreSettings] = create_model("Settings", __base__=CoreSettings, **_sections)


def configured(settings: CoreSettings) -> list[tuple[Manifest, Any]]:
    """The capabilities that have a section in the settings, with their sections."""
    sections = [(manifest, getattr(settings, manifest.name, None)) for manifest in MANIFESTS]
    return [(manifest, section) for manifest, section in sections if section is not None]


def text_destinations(settings: CoreSettings) -> list[tuple[str, str]]:
    """The addresses to which a server with these settings sends text, each with the purpose."""
    found = [each for manifest, section in configured(settings) for each in manifest.destinations(section)]
    endpoint = settings.telemetry.otlp_endpoint
    return found + ([(endpoint, "traces")] if endpoint else [])
