"""The OpenAPI document of all routes of all capabilities, whatever is switched on, and its types for the console."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from armarium.assembly import MANIFESTS
from armarium.capabilities.sandbox import route_tools as sandbox
from armarium.capabilities.store import route_tools as store
from armarium.foundation.routes import Route
from armarium.foundation.settings.model import ConsoleSettings
from armarium.surfaces.console.app import Console
from armarium.surfaces.operations.app import declared_routes
from armarium.surfaces.web.file_tools import FILES, FileTools
from armarium.surfaces.web.openapi import openapi_document
from armarium.surfaces.web.raw import operations_of

OPENAPI = "openapi.json"
TYPES = "web/src/api.d.ts"

_REPOSITORY = Path(__file__).resolve().parents[2]
_GENERATOR = "node_modules/openapi-typescript/bin/cli.js"


def openapi_page() -> str:
    """The document, with the routes in a stable order."""
    console = Console(ConsoleSettings(), Path("state"), ())
    routes: list[tuple[str, Route]] = [
        *((manifest.name, route) for manifest in MANIFESTS for route in manifest.declared_routes()),
        *((name, route) for name, routes in declared_routes() for route in routes),
        *((console.name, route) for route in console.routes),
        *((FILES, route) for route in FileTools((), ()).routes),
    ]
    offered = [each.raw_files(tool.spec for tool in each.ROUTE_TOOLS) for each in (sandbox, store)]
    raw = [each for each in offered if each is not None]
    return json.dumps(openapi_document(routes, {**console.operations, **operations_of(raw)}), indent=1) + "\n"


def api_types(document: str) -> str:
    """The types of the document in TypeScript. Needs the packages of web/."""
    # Arguments with a default may be left out of a request.
    command = [sys.executable, "scripts/console", "--node", _GENERATOR, "--default-non-nullable=false"]
    done = subprocess.run(command, cwd=_REPOSITORY, input=document, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openapi-typescript failed: {done.stderr}")
    return done.stdout
