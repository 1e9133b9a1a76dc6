"""`dir2mcp up`: its output, its files, authentication, and exit codes."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jsonschema
import pexpect
import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from armarium.capabilities.corpus.commands import ask as ask_module
from armarium.capabilities.corpus.commands.secret_store import write_secret_file
from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings
from armarium.capabilities.corpus.errors import IngestionFailed
from support import full_disk
from support.certificates import write_certificate
from support.command_line import DEADLINE_S, Command, CommandLine
from support.dir2mcp_command import Quick, Start
from support.server import installed_command

EVENT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ts", "level", "event", "data"],
    "properties": {
        "ts": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
        "level": {"enum": ["info", "warn", "error"]},
        "event": {
            "enum": [
                "index_loaded", "server_started", "connection", "scan_progress", "embed_progress", "file_error",
                "payment_required", "payment_verified", "payment_settled", "payment_failed", "fatal",
            ]
        },
        "data": {"type": "object"},
    },
}  # fmt: skip
PAGE_BYTES = 4096
COUNTS = (
    "scanned", "indexed", "skipped", "deleted", "representations", "chunks_total", "embedded_ok", "errors",
)  # fmt: skip


def events_until(server: Command, event: str, **expected: Any) -> list[dict[str, Any]]:
    """The events up to the first one with the name and data. Each is validated against the contract."""
    seen: list[dict[str, Any]] = []
    while not (seen and seen[-1]["event"] == event and expected.items() <= seen[-1]["data"].items()):
        line = json.loads(server.stdout.next())
        jsonschema.validate(line, EVENT_SCHEMA)
        seen.append(line)
    return seen


def connection(server: Command) -> dict[str, Any]:
    return events_until(server, "connection")[-1]["data"]


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def initialize(url: str, token: str | None, **options: Any) -> httpx.Response:
    headers = {"accept": "application/json, text/event-stream"} | (
        {"authorization": f"Bearer {token}"} if token else {}
    )
    headers |= options.pop("headers", {})
    client = {"name": "test", "version": "0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return httpx.post(url, json=body, headers=headers, timeout=DEADLINE_S, trust_env=False, **options)


@pytest.mark.alone
def test_the_server_answers_before_the_index_grows_and_json_reports_everything(serve: Start, project: Path) -> None:
    (project / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing of the kind")
    server = serve("up", "--json")
    first = events_until(server, "connection")
    assert [line["event"] for line in first] == ["server_started", "connection"]
    token = (project / ".dir2mcp/secret.token").read_text().strip()
    assert initialize(first[-1]["data"]["url"], token).status_code == 200
    rest = events_until(server, "embed_progress", running=False)
    assert rest[0]["event"] == "index_loaded"
    kinds = {line["event"] for line in rest}
    assert {"scan_progress", "embed_progress", "file_error"} <= kinds
    failed = next(line for line in rest if line["event"] == "file_error")
    assert failed["level"] == "warn"
    assert failed["data"]["rel_path"] == "broken.pdf"
    last = [line["data"] for line in rest if line["event"] == "scan_progress"][-1]
    assert set(COUNTS) <= set(last)
    assert (last["running"], last["indexed"], last["errors"]) == (False, 1, 1)
    began = time.monotonic()
    assert server.interrupt() == 0
    assert time.monotonic() - began < 5


def test_the_connection_has_the_fields_of_the_contract_and_no_token(serve: Start, project: Path) -> None:
    reported = connection(serve("--json", "up"))
    token_file = project / ".dir2mcp/secret.token"
    assert reported == {
        "transport": "mcp_streamable_http",
        "url": reported["url"],
        "headers": {"MCP-Protocol-Version": "2025-11-25", "Authorization": "Bearer <token>"},
        "token_source": "secret.token",
        "token_file": str(token_file),
    }
    written = json.loads((project / ".dir2mcp/connection.json").read_text())
    assert written == {
        "transport": "mcp_streamable_http",
        "url": reported["url"],
        "headers": {"MCP-Protocol-Version": "2025-11-25", "Authorization": "Bearer <token-from-secret.token>"},
        "session": {"uses_mcp_session_id": True, "header_name": "MCP-Session-Id", "assigned_on_initialize": True},
    }
    for private in ("secret.token", "connection.json", ".dir2mcp.yaml.snapshot"):
        assert mode_of(project / ".dir2mcp" / private) == 0o600
    _server_introduces_itself(reported["url"], token_file.read_text().strip())
    _loopback_origins_are_allowed(reported["url"], token_file.read_text().strip())


def _server_introduces_itself(url: str, token: str) -> None:
    answer = initialize(url, token)
    assert "mcp-session-id" in answer.headers
    result = answer.json()["result"]
    assert result["protocolVersion"] == "2025-11-25"
    assert result["capabilities"]["tools"] == {"listChanged": False}
    assert result["serverInfo"] == {
        "name": "dir2mcp",
        "title": "dir2mcp: Directory RAG MCP Server",
        "version": "0.4.0",
    }
    assert result["instructions"] == "Use tools/list then tools/call. Results include citations."


def _loopback_origins_are_allowed(url: str, token: str) -> None:
    """Loopback origins are allowed with any port, and no other origin."""
    assert initialize(url, token, headers={"origin": "http://localhost:5173"}).status_code == 200
    assert initialize(url, token, headers={"origin": "http://127.0.0.1"}).status_code == 200
    refused = initialize(url, token, headers={"origin": "http://localhost.evil.example"})
    assert refused.status_code == 403
    assert refused.json()["error"]["data"] == {"code": "FORBIDDEN_ORIGIN", "retryable": False}


def test_index_mode_connection_and_progress_are_on_standard_output(serve: Start, project: Path) -> None:
    server = serve("up", "--mcp-path", "/notes/mcp")
    lines = server.stdout.until("indexed=1")
    state = project / ".dir2mcp"
    assert lines[0] == f"Index: {state}  (meta.sqlite + vectors_text.hnsw + vectors_code.hnsw)"
    assert lines[1] == "Mode: incremental  (server-first; indexing in background)"
    block = lines[lines.index("MCP endpoint:") :]
    assert block[1].startswith("  URL:    http://127.0.0.1:")
    assert block[1].endswith("/notes/mcp")
    assert block[2] == f"  Auth:   Bearer (source=secret.token, from {state / 'secret.token'})"
    assert block[3:7] == [
        "  Headers:",
        "    MCP-Protocol-Version: 2025-11-25",
        "    Authorization: Bearer <token>",
        "    MCP-Session-Id: (assigned after initialize response)",
    ]
    fields = [part.partition("=")[0] for part in lines[-1].removeprefix("Progress: ").split()]
    assert fields[:8] == ["scanned", "indexed", "skipped", "deleted", "reps", "chunks", "embedded", "errors"]
    # A line written while indexing runs also has the rate and the time left, once they are known.
    assert set(fields[8:]) <= {"files_per_s", "chunks_per_s", "left"}
    assert (state / "secret.token").read_text().strip() not in "\n".join(lines)


def test_quiet_shows_only_the_connection(serve: Start) -> None:
    server = serve("up", "--quiet")
    assert server.stdout.next() == "MCP endpoint:"
    server.stdout.until("MCP-Session-Id")
    assert server.interrupt() == 0
    assert server.stdout._lines.get(timeout=DEADLINE_S) is None


def test_a_second_start_finds_nothing_to_do_and_keeps_the_token(serve: Start, project: Path) -> None:
    first = serve("up", "--json")
    events_until(first, "embed_progress", running=False)
    token = (project / ".dir2mcp/secret.token").read_text()
    assert first.interrupt() == 0
    again = events_until(serve("up", "--json"), "scan_progress", running=False)
    assert next(line for line in again if line["event"] == "index_loaded")["data"]["chunks"] == 1
    assert (again[-1]["data"]["indexed"], again[-1]["data"]["skipped"]) == (0, 1)
    assert (project / ".dir2mcp/secret.token").read_text() == token


def test_a_closed_pipe_does_not_end_the_server(dir2mcp: CommandLine, project: Path) -> None:
    reading, writing = os.pipe()
    with subprocess.Popen(
        [installed_command("dir2mcp"), "up", "--json"],
        cwd=project,
        env=dir2mcp.environ,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        os.close(writing)
        with os.fdopen(reading) as lines:
            url = next(
                reported["data"]["url"] for line in lines if (reported := json.loads(line))["event"] == "connection"
            )
        # All further events are written to a closed pipe.
        (project / "more.md").write_text("more\n")
        assert httpx.get(f"{url.removesuffix('/mcp')}/health", timeout=DEADLINE_S, trust_env=False).text == "ok"
        server.terminate()
        assert server.stderr
        assert "BrokenPipe" not in server.stderr.read()
        assert server.wait(DEADLINE_S) == 0


def test_the_token_may_come_from_a_file_and_the_file_is_named(serve: Start, tmp_path: Path) -> None:
    token_file = tmp_path / "my.token"
    token_file.write_text("canary-token-from-a-file\n")
    token_file.chmod(0o600)
    reported = connection(serve("up", "--json", "--auth", f"file:{token_file}"))
    assert (reported["token_source"], reported["token_file"]) == ("file", str(token_file))
    assert initialize(reported["url"], "canary-token-from-a-file").status_code == 200
    assert initialize(reported["url"], "another").status_code == 401


def test_the_token_may_come_from_the_environment_and_wins_over_the_settings(
    dir2mcp: CommandLine, serve: Start, project: Path
) -> None:
    auth = "    mode: file\n    token_file: nowhere\n    token_env: MY_TOKEN\n"
    (project / ".dir2mcp.yaml").write_text(f"security:\n  auth:\n{auth}")
    dir2mcp.environ["MY_TOKEN"] = "canary-token-from-the-environment"
    reported = connection(serve("up", "--json", "--trust"))
    assert reported["token_source"] == "env"
    assert reported["token_source_details"] == {"variable": "MY_TOKEN"}
    assert initialize(reported["url"], "canary-token-from-the-environment").status_code == 200
    for file in (project / ".dir2mcp").iterdir():
        if file.is_file():
            assert b"canary-token-from-the-environment" not in file.read_bytes()


def test_the_token_may_come_from_the_keychain_that_the_settings_name(
    dir2mcp: CommandLine, serve: Start, project: Path, keychain: Path
) -> None:
    (project / ".dir2mcp.yaml").write_text(
        "secrets:\n  provider: keychain\n  keychain:\n    account: me\nsecurity:\n  auth:\n    token_file: nowhere\n"
    )
    token = "canary-token-of-the-keychain"
    keychain.write_text(json.dumps({"dir2mcp/me:DIR2MCP_AUTH_TOKEN": token}))
    server = serve("up", "--json", "--trust")
    reported = connection(server)
    assert (reported["token_source"], reported["token_source_details"]) == ("keychain", {"service": "dir2mcp"})
    assert initialize(reported["url"], token).status_code == 200
    assert initialize(reported["url"], "another").status_code == 401
    state = project / ".dir2mcp"
    assert not (state / "secret.token").exists()
    written = json.loads((state / "connection.json").read_text())
    assert written["headers"]["Authorization"] == "Bearer <token-from-keychain:dir2mcp>"
    snapshot = yaml.safe_load((state / ".dir2mcp.yaml.snapshot").read_text())
    found = snapshot["secret_sources"]["security.auth"]
    assert (found["source"], found["place"]) == ("keychain", "dir2mcp")
    assert server.interrupt() == 0
    assert token not in "\n".join([*server.stdout._seen, *server.stderr._seen])
    assert not any(token.encode() in file.read_bytes() for file in state.rglob("*") if file.is_file())
    dir2mcp.environ["DIR2MCP_AUTH_TOKEN"] = "of-the-environment"
    reported = connection(serve("up", "--json", "--trust"))
    assert reported["token_source"] == "env"
    assert initialize(reported["url"], token).status_code == 401


def test_without_a_token_in_the_keychain_one_is_generated_in_its_file(
    serve: Start, project: Path, keychain: Path
) -> None:
    (project / ".dir2mcp.yaml").write_text("secrets:\n  provider: keychain\n")
    assert connection(serve("up", "--json", "--trust"))["token_source"] == "secret.token"


@pytest.mark.parametrize("provider", ["auto", "keychain", "file", "env"])
def test_no_provider_of_secrets_lets_a_key_out(
    dir2mcp: CommandLine, serve: Start, project: Path, keychain: Path, tmp_path: Path, provider: str
) -> None:
    key, secret_file, settings = "canary-key-5f0e", tmp_path / "keys" / "secret.env", tmp_path / "settings.yaml"
    match provider:
        case "env":
            dir2mcp.environ["MISTRAL_API_KEY"] = key
        case "file":
            write_secret_file(secret_file, "MISTRAL_API_KEY", key)
        case _:
            keychain.write_text(json.dumps({"dir2mcp/default:MISTRAL_API_KEY": key}))
    # Nobody listens at this address: embedding fails, which is logged, and is tried again.
    settings.write_text(
        f"embedding:\n  provider: mistral\nmistral:\n  base_url: http://127.0.0.1:9\naudit:\n  enabled: true\n"
        f"telemetry:\n  log_level: debug\nsecrets:\n  provider: {provider}\n  file:\n    path: {secret_file}\n"
    )
    server = serve("up", "--json", "--config", str(settings))
    events = events_until(server, "index_loaded")
    server.stderr.until("retrying a provider request")
    arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert server.interrupt() == 0
    said = "\n".join([*server.stdout._seen, *server.stderr._seen])
    assert any(event["event"] == "connection" for event in events)
    assert key not in said
    assert key.encode() not in arguments
    state = project / ".dir2mcp"
    assert not any(key.encode() in file.read_bytes() for file in state.rglob("*") if file.is_file())
    snapshot = yaml.safe_load((state / ".dir2mcp.yaml.snapshot").read_text())
    source = "keychain" if provider == "auto" else provider
    assert snapshot["secret_sources"]["mistral.api_key"]["source"] == source


def test_a_public_server_listens_on_all_addresses_and_requires_its_token(serve: Start, project: Path) -> None:
    server = serve("up", "--json", "--public")
    started = json.loads(server.stdout.next())["data"]
    assert (started["host"], started["public"], started["auth"]) == ("0.0.0.0", True, "secret.token")
    reported = connection(server)
    assert "127.0.0.1" not in reported["url"]
    assert (urlsplit(reported["url"]).port, urlsplit(reported["url"]).path) == (started["port"], "/mcp")
    assert reported["local_url"] == f"http://127.0.0.1:{started['port']}/mcp"
    written = json.loads((project / ".dir2mcp/connection.json").read_text())
    assert (written["url"], written["local_url"]) == (reported["url"], reported["local_url"])
    url = reported["local_url"]
    assert initialize(url, None).status_code == 401
    assert initialize(url, (project / ".dir2mcp/secret.token").read_text().strip()).status_code == 200


def test_the_snapshot_names_the_sources_of_keys_and_contains_none(
    dir2mcp: CommandLine, serve: Start, project: Path
) -> None:
    secret_file = project / ".dir2mcp" / "secret.env"
    secret_file.parent.mkdir(mode=0o700)
    secret_file.write_text("ELEVENLABS_API_KEY=canary-eleven\n")
    secret_file.chmod(0o600)
    (project / ".dir2mcp.yaml").write_text(
        "mistral:\n  api_key: ${MISTRAL_API_KEY}\nembedding:\n  provider: local\nchat:\n  provider: none\n"
        "openai:\n  api_key: canary-openai\n  base_url: http://me:canary-password@127.0.0.1:9/v1\n"
        "rag:\n  system_prompt: never say ${MISTRAL_API_KEY}\n"
    )
    dir2mcp.environ["MISTRAL_API_KEY"] = "canary-mistral"
    server = serve("up", "--json", "--trust")
    events_until(server, "embed_progress", running=False)
    assert server.interrupt() == 0
    snapshot = yaml.safe_load((project / ".dir2mcp/.dir2mcp.yaml.snapshot").read_text())
    sources = {name: found["source"] for name, found in snapshot["secret_sources"].items()}
    assert sources == {
        "mistral.api_key": "env",
        "stt.mistral.api_key": "env",
        "stt.elevenlabs.api_key": "file",
        "openai.api_key": "file",
        "security.auth": "file",
    }
    assert snapshot["ingest"]["max_file_mb"] == 20
    said = "\n".join(server.stdout._seen)
    written = [
        file.read_bytes() for file in (project / ".dir2mcp").rglob("*") if file.is_file() and file != secret_file
    ]
    for canary in ("canary-mistral", "canary-eleven", "canary-openai", "canary-password"):
        assert canary not in said
        assert not any(canary.encode() in content for content in written)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return write_certificate(tmp_path)


def test_with_a_certificate_the_server_speaks_https_and_without_a_token_no_header_is_asked_for(
    serve: Start, certificate: tuple[Path, Path]
) -> None:
    cert_file, key_file = certificate
    reported = connection(serve("up", "--json", "--auth", "none", "--tls-cert", cert_file, "--tls-key", key_file))
    assert reported["url"].startswith("https://127.0.0.1:")
    assert (reported["token_source"], reported["headers"]) == ("none", {"MCP-Protocol-Version": "2025-11-25"})
    trusting = ssl.create_default_context(cafile=str(cert_file))
    assert initialize(reported["url"], None, verify=trusting).status_code == 200


def test_a_certificate_that_cannot_be_used_ends_with_2(
    here: Quick, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    cert_file, key_file = certificate
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no PEM at all")
    pairs = [(cert_file, nonsense), (nonsense, key_file), (cert_file, tmp_path / "missing.pem"), (cert_file, cert_file)]
    for cert, key in pairs:
        outcome = here("up", "--json", "--tls-cert", cert, "--tls-key", key)
        assert outcome.code == 2
        assert outcome.json["data"]["code"] == "TLS_CONFIG_INVALID"
        assert outcome.stderr.startswith("ERROR: TLS_CONFIG_INVALID: ")


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it(
    here: Quick, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    key = serialization.load_pem_private_key(certificate[1].read_bytes(), None)
    locked = tmp_path / "locked.pem"
    protected = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protected))
    assert here("up", "--tls-cert", certificate[0], "--tls-key", locked).code == 2


def test_an_address_that_is_taken_ends_with_4(here: Quick) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = here("up", "--json", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert outcome.code == 4
    assert (outcome.json["event"], outcome.json["data"]["code"]) == ("fatal", "BIND_FAILED")


def test_a_directory_that_another_server_indexes_ends_with_5(dir2mcp: CommandLine, serve: Start) -> None:
    connection(serve("up", "--json"))
    assert dir2mcp("up", "--json").code == 5


@pytest.mark.parametrize("state_dir", ["a-file/state", "/proc/nobody-can-write-here"])
@pytest.mark.parametrize("command", [["up"], ["up", "--read-only"], ["ask", "why"], ["reindex"]])
def test_state_that_cannot_be_written_ends_with_6(
    here: Quick, project: Path, command: list[str], state_dir: str
) -> None:
    (project / "a-file").write_text("not a directory")
    outcome = here(*command, "--json", "--state-dir", state_dir)
    assert outcome.code == 6
    assert (outcome.json["event"], outcome.json["data"]["code"]) == ("fatal", "INGESTION_FAILED")
    assert "--state-dir" in outcome.json["data"]["hint"]


def test_a_read_only_server_changes_nothing_but_its_state(serve: Start, project: Path, tmp_path: Path) -> None:
    before = sorted(file.name for file in project.iterdir())
    server = serve("up", "--json", "--read-only", "--state-dir", tmp_path / "state")
    reported = connection(server)
    token = Path(reported["token_file"]).read_text().strip()
    assert initialize(reported["url"], token).status_code == 200
    events_until(server, "embed_progress", running=False)
    assert server.interrupt() == 0
    assert sorted(file.name for file in project.iterdir()) == before


def test_failed_indexing_ends_the_server_with_6_after_it_answered(environ: dict[str, str], project: Path) -> None:
    program = [sys.executable, full_disk.__file__, "up", "--json"]
    done = subprocess.run(program, cwd=project, env=environ, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 6
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    assert "connection" in [line["event"] for line in reported]
    assert (reported[-1]["event"], reported[-1]["data"]["code"]) == ("fatal", "INGESTION_FAILED")


def test_a_terminal_shows_progress_and_ctrl_c_ends_the_server_with_success(
    environ: dict[str, str], project: Path
) -> None:
    for number in range(40):
        (project / f"note{number}.md").write_text(f"# Note {number}\n\nSomething about subject {number}.\n")
    command = installed_command("dir2mcp")
    with pexpect.spawn(command, ["up"], cwd=project, env=environ, timeout=DEADLINE_S, dimensions=(40, 160)) as terminal:
        terminal.expect_exact("MCP endpoint:")
        terminal.expect(r"Progress: scanned=41 indexed=41 [^\r\n]* embedded=41 errors=0")
        before = terminal.before
        assert b'"level"' not in before, "the log is not for a terminal"
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 0


def test_ask_without_an_index_makes_one_first_and_then_is_quick(dir2mcp: CommandLine, project: Path) -> None:
    (project / "deploy.md").write_text(
        "# Deploying\n\nThe service is deployed with `make ship` from the main branch.\n"
    )
    first = dir2mcp("ask", "how is the service deployed?")
    assert first.code == 0
    assert "make ship" in first.stdout
    assert "[deploy.md:L" in first.stdout
    assert "Sources:" in first.stdout
    whole = dir2mcp("--json", "ask", "how is the service deployed?", "--k", "1")
    assert whole.json["hits"][0]["rel_path"] == "deploy.md"
    assert {"question", "answer", "citations", "hits", "indexing_complete"} == set(whole.json)
    found = dir2mcp("ask", "make ship", "--mode", "search_only", "--file-glob", "*.md")
    assert found.stdout.startswith("1. [deploy.md:L")


def test_status_shows_the_stored_state_and_reindex_rebuilds_it(dir2mcp: CommandLine, project: Path) -> None:
    (project / ".dir2mcp.yaml").write_text("mistral:\n  api_key: ${NOBODY_SET_THIS}\n")
    nothing = dir2mcp("status", "--json", "--trust")
    assert (nothing.code, nothing.json["data"]["code"]) == (1, "INDEX_NOT_READY")
    (project / ".dir2mcp.yaml").unlink()
    built = dir2mcp("reindex")
    assert built.code == 0
    assert built.stdout.splitlines()[1] == "Mode: full"
    assert built.stdout.splitlines()[-1].startswith("Progress: scanned=1 indexed=1 ")
    reported = dir2mcp("status", "--json").json
    assert (reported["root"], reported["serving"], reported["indexing"]["running"]) == (str(project), False, False)
    lines = dir2mcp("status").stdout.splitlines()
    assert lines[0].startswith("Index: ")
    assert lines[-1].startswith("Progress: scanned=1 indexed=1 ")


def test_the_settings_file_is_not_indexed_whatever_its_name_is(dir2mcp: CommandLine, project: Path) -> None:
    (project / "conf.yaml").write_text("# the zanzibar of the operator\nmistral:\n  api_key: ''\n")
    built = dir2mcp("reindex", "--config", "conf.yaml")
    assert (built.code, built.stdout.splitlines()[-1][:28]) == (0, "Progress: scanned=1 indexed=")
    found = dir2mcp("ask", "zanzibar", "--config", "conf.yaml", "--mode", "search_only")
    assert "conf.yaml:" not in found.stdout


def test_status_reports_an_index_that_cannot_be_opened(dir2mcp: CommandLine, project: Path) -> None:
    assert dir2mcp("reindex").code == 0
    store = project / ".dir2mcp/meta.sqlite"
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE settings SET value = '0' WHERE key = 'index_format_version'")
        database.execute("DELETE FROM settings WHERE key = 'index_format_version#'")
    _refuse(dir2mcp, "INDEX_VERSION_MISMATCH", "status", "up")
    assert dir2mcp("reindex").code == 0
    whole = store.read_bytes()
    store.write_bytes(whole[: 2 * PAGE_BYTES] + b"\xee" * (len(whole) - 2 * PAGE_BYTES))
    _refuse(dir2mcp, "STORE_CORRUPT", "status")
    store.write_bytes(b"this is no database" * 1000)
    _refuse(dir2mcp, "STORE_CORRUPT", "status")
    store.unlink()
    gone = dir2mcp("status", "--json")
    assert (gone.code, gone.json["data"]["code"]) == (1, "INDEX_NOT_READY")


def _refuse(dir2mcp: CommandLine, code: str, *commands: str) -> None:
    for command in commands:
        outcome = dir2mcp(command, "--json")
        reported = outcome.json_lines[-1]["data"]
        assert (outcome.code, reported["code"], reported["hint"]) == (5, code, "run: dir2mcp reindex")


def test_status_leaves_the_state_as_it_is(dir2mcp: CommandLine, project: Path) -> None:
    assert dir2mcp("reindex").code == 0

    def state() -> dict[str, tuple[int, int]]:
        found = (project / ".dir2mcp").rglob("*")
        return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in found}

    before = state()
    assert dir2mcp("status").code == 0
    assert state() == before


def test_ask_rebuilds_an_index_whose_database_is_gone(dir2mcp: CommandLine, project: Path) -> None:
    (project / "deploy.md").write_text("# Deploying\n\nThe service is deployed with `make ship`.\n")
    assert dir2mcp("reindex").code == 0
    (project / ".dir2mcp/meta.sqlite").unlink()
    assert "make ship" in dir2mcp("ask", "how is the service deployed?").stdout


def test_ask_does_not_try_whether_a_finished_index_can_be_written(
    dir2mcp: CommandLine, here: Quick, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "deploy.md").write_text("# Deploying\n\nThe service is deployed with `make ship`.\n")

    def refuse(loaded: LoadedSettings) -> None:
        raise IngestionFailed("nothing may be written here")

    monkeypatch.setattr(ask_module, "prepare_state", refuse)
    assert here("ask", "how is the service deployed?").code == 6
    assert dir2mcp("reindex").code == 0
    assert "make ship" in here("ask", "how is the service deployed?").stdout


def test_reindex_repairs_a_damaged_index_and_reports_its_progress(dir2mcp: CommandLine, project: Path) -> None:
    (project / ".dir2mcp").mkdir()
    (project / ".dir2mcp/meta.sqlite").write_bytes(b"this is no database" * 1000)
    outcome = dir2mcp("reindex", "--json")
    assert outcome.code == 0
    for line in outcome.json_lines:
        jsonschema.validate(line, EVENT_SCHEMA)
    assert outcome.json_lines[0]["event"] == "index_loaded"
    assert outcome.json_lines[-1]["event"] == "embed_progress"


def test_reindex_repairs_an_index_whose_pages_are_gone(dir2mcp: CommandLine, project: Path) -> None:
    assert dir2mcp("reindex").code == 0
    file = project / ".dir2mcp/meta.sqlite"
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert dir2mcp("reindex").code == 0
    assert "[hello.txt:" in dir2mcp("ask", "hello").stdout


def test_nothing_but_events_reaches_standard_output_when_the_log_is_noisy(dir2mcp: CommandLine, project: Path) -> None:
    environ = dir2mcp.environ | {"DIR2MCP_TELEMETRY__LOG_LEVEL": "debug"}
    with subprocess.Popen(
        [installed_command("dir2mcp"), "up", "--json"], cwd=project, env=environ, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdout
        for line in server.stdout:
            reported = json.loads(line)
            jsonschema.validate(reported, EVENT_SCHEMA)
            if reported["event"] == "embed_progress" and reported["data"].get("running") is False:
                server.terminate()
        assert server.wait(DEADLINE_S) == 0
