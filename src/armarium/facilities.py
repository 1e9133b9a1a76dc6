"""What a server with certain settings provides to its capabilities."""

from __future__ import annotations

from pathlib import Path

from armarium.capability import Facilities
from armarium.foundation.audit import files_of_audit
from armarium.foundation.events import Events
from armarium.foundation.files.credential_files import CREDENTIAL_FILES
from armarium.foundation.files.path_rules import patterns_of
from armarium.foundation.security.authentication import token_path
from armarium.foundation.settings.file_secrets import secret_files
from armarium.foundation.settings.model import CoreSettings
from armarium.settings import configured


def facilities_for(
    settings: CoreSettings, events: Events | None = None, address: str | None = None, *, is_served: bool = False
) -> Facilities:
    """What a server with these settings provides to its capabilities."""
    private_paths = [path for path in (settings.state_path(), token_path(settings)) if path is not None]
    private_paths += secret_files(settings)
    tls = settings.server.tls
    private_paths += [Path(file).expanduser() for file in (tls.certificate, tls.key) if file]
    private_paths += files_of_audit(settings.audit_file()) if settings.audit.enabled else []
    private_paths += [path for manifest, section in configured(settings) for path in manifest.state_paths(section)]
    return Facilities(
        events or Events(),
        settings.state_path(),
        private_paths=private_paths,
        settings_files=settings.files,
        credential_patterns=patterns_of(settings.security.hide_credentials, CREDENTIAL_FILES),
        max_body_bytes=settings.server.max_body_bytes,
        address=address,
        is_served=is_served,
    )
