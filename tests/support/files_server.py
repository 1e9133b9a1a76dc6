"""A served directory for tests of the JSON API of files: callers by key, and sessions of the console."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from armarium.foundation.security.identity import key_hash
from support.server import ServerProcess, installed_command, write_config

KEYS = {"ann": "key-of-ann", "ben": "key-of-ben"}
"""Ann is a member of `staff`, Ben is not."""


@dataclass(frozen=True)
class ServedFiles:
    """A running server, and the directories of its roots."""

    process: ServerProcess
    base: Path

    def root(self, name: str = "work") -> Path:
        return self.base / name

    def http(self, name: str = "ann") -> httpx.Client:
        headers = {"authorization": f"Bearer {KEYS[name]}"}
        return httpx.Client(base_url=self.process.url, headers=headers, timeout=60)

    def calls(self, name: str = "ann", **filters: Any) -> list[dict[str, Any]]:
        """The caller's own calls, newest first."""
        with self.http(name) as http:
            answer = http.get("/api/audit", params=filters)
        assert answer.status_code == 200, answer.text
        return answer.json()["calls"]


@contextmanager
def served_files(base: Path, more_roots: Sequence[dict[str, Any]] = (), **settings: Any) -> Generator[ServedFiles]:
    """Serve the root `work`, which allows everything, and these other roots."""
    roots = [{"name": "work", "allowed_tools": ["*"]}, *more_roots]
    for root in roots:
        (base / root["name"]).mkdir(exist_ok=True)
    keys = [
        {"username": name, "groups": ["staff"] if name == "ann" else [], "key_sha256": key_hash(key)}
        for name, key in KEYS.items()
    ]
    sandbox = settings.pop("sandbox", {})
    config = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "security": {"auth": "keys", "keys": keys},
        "sandbox": {"roots": [{"path": str(base / root["name"]), **root} for root in roots], **sandbox},
        **settings,
    }
    command = [installed_command("armarium"), "serve", "--config", str(write_config(base, config))]
    with ServerProcess(command) as process:
        yield ServedFiles(process, base)


def code_of(answer: httpx.Response) -> str:
    """The code of an error, of a call or of a request that never became one."""
    body = answer.json()
    return body["error"]["code"] if isinstance(body.get("error"), dict) else body["code"]
