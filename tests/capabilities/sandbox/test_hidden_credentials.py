"""The content of files with credentials reaches no caller, through whatever tool of the endpoint."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.foundation.files.credential_files import CREDENTIAL_FILES
from armarium.foundation.files.path_rules import PathRules, added_patterns, patterns_of
from support.agent_server import served
from support.client import ToolClient, connected
from support.sandbox_in_process import between, sandbox
from support.trees import make_tree, picture

CANARY = "canary-4b1d-inside-a-credential"
is_hidden = PathRules(CREDENTIAL_FILES).match
SECRET = f"API_TOKEN={CANARY}\n"
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
HIDDEN = [
    ".env", "service/.env.staging", "certs/SERVER.PEM", "ID_RSA", "cloud/.aws/credentials", "home/.Ssh/config",
    "home/.docker/config.json", "home/.kube/config", "home/.npmrc",
    "prod.env.", "cloud/terraform.tfstate", "old/id_rsa.bak", "home/.bash_history", "a/service_account-1.json",
]  # fmt: skip
LINKS = {"plain.txt": ".env", "cloud/link": ".aws", "to-certs": "certs"}
SHOWN = {".env.example": "API_TOKEN=\n", "certs/readme.md": "plain\n", "environment.md": "plain\n"}


def make_project(directory: Path) -> None:
    make_tree(directory, dict.fromkeys(HIDDEN, SECRET) | SHOWN)
    for link, target in LINKS.items():
        (directory / link).symlink_to(target)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("served") / "project"
    make_project(directory)
    return directory


@pytest.fixture(scope="module")
def address(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with served(project, tmp_path_factory.mktemp("home")) as url:
        yield url


@pytest.fixture
async def agent(address: str, project: Path) -> AsyncGenerator[ToolClient]:
    restore(project)
    async with connected(address) as client:
        yield client


def restore(project: Path) -> None:
    """Undo what the tools could change."""
    shutil.rmtree(project / "taken.txt", ignore_errors=True)
    (project / "taken.txt").unlink(missing_ok=True)
    for link in LINKS:
        (project / link).unlink(missing_ok=True)
    make_project(project)


def arguments_for(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Arguments that lead a tool to a path: every property that could name a file does, the others are made up."""
    chosen: dict[str, Any] = {}
    for name, described in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        value = _value(name, described, path)
        if value is not None and (required or "path" in name or "prefix" in name):
            chosen[name] = value
    return chosen


def _value(name: str, described: dict[str, Any], path: str) -> Any:
    if name.endswith("root"):
        return "workspace"
    if name == "dest_path":
        return "taken.txt"
    if "enum" in described:
        return described["enum"][0]
    kind = described.get("type")
    if kind == "string":
        return path if "path" in name or "prefix" in name else "TOKEN"
    if kind == "array":
        items = described.get("items", {})
        return [path] if "path" in name and items.get("type") == "string" else []
    return {"integer": 1, "number": 1, "boolean": True, "object": {}}.get(str(kind))


@pytest.mark.parametrize("path", [".env", "cloud/.aws/credentials", "plain.txt", "certs", "."])
async def test_no_tool_shows_the_content_of_a_hidden_file(agent: ToolClient, project: Path, path: str) -> None:
    tools = (await agent.mcp.list_tools()).tools
    assert len(tools) > 30, "sandbox, corpus and registry are served"
    for tool in tools:
        result = await agent.mcp.call_tool(tool.name, arguments_for(tool.input_schema, path))
        said = result.model_dump_json()
        assert CANARY not in said, f"{tool.name} shows the content of {path}"
        assert DIGEST not in said, f"{tool.name} shows the hash of {path}"
        # What it carried elsewhere must be hidden there.
        shown = [
            name for name, (_, _, content) in picture(project).items() if content == DIGEST and not is_hidden(name)
        ]
        assert shown == [], f"{tool.name} carried {path} to {shown}"
        restore(project)


REFUSED: dict[str, dict[str, Any]] = {
    "read_file": {},
    "hash_file": {"algorithm": "sha256"},
    "stat_file": {"include_sha256": True},
    "grep": {"pattern": "TOKEN"},
    "write_file": {"content": "x"},
    "patch_file": {"patch": "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n", "dry_run": True},
    "remove_file": {},
    "copy": {},
    "move": {},
}


CHANGES = ("write_file", "patch_file", "remove_file", "move")


@pytest.mark.parametrize("tool", REFUSED)
@pytest.mark.parametrize(
    "path", [".env", "certs/SERVER.PEM", "prod.env.", "cloud/.aws/credentials", "cloud/link/credentials", "plain.txt"]
)
async def test_a_hidden_file_is_refused_with_its_own_code(
    agent: ToolClient, project: Path, tool: str, path: str
) -> None:
    if path == "plain.txt" and tool in ("remove_file", "move"):
        return  # These change the link itself, which is an ordinary entry.
    before = {name: (project / name).read_bytes() for name in HIDDEN}
    place = {"root": "workspace", "path": path}
    if tool in ("copy", "move"):
        place = between(f"workspace:{path}", "workspace:taken.txt")

    error = await agent.fails(tool, **place, **REFUSED[tool])

    # The directory of cloud credentials may not be written at all.
    denied = path.startswith("cloud/") and tool in CHANGES
    assert error["code"] == ("WRITE_DENIED" if denied else "CREDENTIALS_HIDDEN")
    assert {name: (project / name).read_bytes() for name in HIDDEN} == before
    assert not (project / "taken.txt").exists()


@pytest.mark.parametrize("path", ["new.key", "deep/new/.env", "plain/.netrc"])
async def test_a_file_of_a_hidden_name_is_not_created(agent: ToolClient, project: Path, path: str) -> None:
    for tool, place in (
        ("write_file", {"root": "workspace", "path": path, "content": "x"}),
        ("copy", between("workspace:environment.md", f"workspace:{path}")),
        ("move", between("workspace:environment.md", f"workspace:{path}")),
    ):
        error = await agent.fails(tool, **place)
        assert error["code"] in ("CREDENTIALS_HIDDEN", "WRITE_DENIED")
    assert not (project / path.partition("/")[0]).exists()


async def test_hidden_files_are_listed_and_found_and_have_metadata(agent: ToolClient) -> None:
    listed = await agent.call("list_folder", root="workspace", path="certs")
    found = await agent.call("glob", root="workspace", pattern="**/.env*")
    status = await agent.call("stat_file", root="workspace", path=".env")
    searched = await agent.call("grep", root="workspace", pattern="TOKEN|plain", output_mode="files")

    assert [entry["name"] for entry in listed["entries"]] == ["SERVER.PEM", "readme.md"]
    assert [match["path"] for match in found["matches"]] == [".env", ".env.example", "service/.env.staging"]
    assert (status["size"], "sha256" in status) == (len(SECRET), False)
    assert searched["files"] == [".env.example", "certs/readme.md", "environment.md"]


async def test_several_files_are_read_without_the_hidden_ones(agent: ToolClient) -> None:
    read = await agent.call("read_files", root="workspace", paths=[".env", "environment.md"])
    assert [item.get("error", {}).get("code") for item in read["files"]] == ["CREDENTIALS_HIDDEN", None]


async def test_a_copy_of_a_tree_leaves_hidden_files_out_and_names_them(tmp_path: Path) -> None:
    make_project(tmp_path / "w")
    async with sandbox({"w": tmp_path / "w"}, tmp_path / "state", credentials=True) as tools:
        copied = await tools.copy("w:certs", "w:duplicate")
    assert copied["skipped"] == ["certs/SERVER.PEM"]
    assert [entry.name for entry in (tmp_path / "w/duplicate").iterdir()] == ["readme.md"]


async def test_a_tree_with_hidden_files_moves_if_they_stay_hidden_and_can_be_removed(tmp_path: Path) -> None:
    make_project(tmp_path / "w")
    make_tree(tmp_path / "w", {"a/.docker/x": "", "b/vault/key": SECRET})
    hidden = ("**/vault/key",)
    async with sandbox({"w": tmp_path / "w"}, tmp_path / "state", credentials=hidden) as tools:
        await tools.move("w:service", "w:renamed")
        error = await tools.fails("move", **between("w:b/vault", "w:b/open"))
        hidden_still = await tools.fails("read_file", root="w", path="renamed/.env.staging")
        await tools.call("remove_folder", root="w", path="renamed")
    assert (error.code, hidden_still.code) == ("CREDENTIALS_HIDDEN", "CREDENTIALS_HIDDEN")
    assert (tmp_path / "w/b/vault/key").exists()
    assert not (tmp_path / "w/renamed").exists()


HIDDEN_NAMES = [
    ".env", ".env~", ".env-prod", ".env_local", ".env.production", "prod.env", "prod.env.bak", ".envrc", ".envrc.local",
    ".env.example.bak", "id_rsa", "id_rsa.bak", "id_rsa~", "id_ed25519_sk", "id_ecdsa_sk.old", "server.key",
    "server.key.old", "server.pem.orig", "tls.key.swp", "vpn.ovpn", "AuthKey.p8", ".vault-token", ".vault_pass",
    "terraform.tfstate", "terraform.tfstate.backup", "terraform.tfstate.1700000000.backup", "prod.tfstate",
    "credentials.json", ".credentials.json", "client_secret.json", "client_secret_1-a.json", "service-account.json",
    "service_account.json", "service-account-key.json", "serviceAccountKey.json", "secrets.yaml", "secrets.yml",
    "secrets.json", "secrets.toml", ".secrets.toml", "Secrets.YAML", ".bash_history", ".zsh_history", ".python_history",
    ".psql_history", ".mysql_history", ".local/share/fish/fish_history", ".Rhistory", ".my.cnf", "_netrc",
    ".cargo/credentials", ".m2/settings.xml", ".terraformrc", ".azure/msal_token_cache.json", ".aws/sso/cache/a.json",
    ".config/gcloud/credentials.db", ".config/gh/hosts.yml", ".password-store/bank.gpg", ".codex/auth.json",
    ".claude/.credentials.json", "dev.kubeconfig", ".mozilla/firefox/a/key4.db", "project/.dir2mcp/secret.token",
]  # fmt: skip
SHOWN_NAMES = [
    ".env.example", ".env.sample", ".env.template", ".env.dist", ".env-example", ".env_sample", ".envrc.example",
    "example.env", "environment.yml", "env.py", "secrets.py", "secrets.go", "secrets.md", "credentials.go",
    "credentials.ts", "service_account.py", "service-account.tf", "client_secret.rb", "id_rsa.pub", "id_ed25519.pub",
    "id_rsa.py", "key.py", "keys.ts", "keyboard.key.ts", "pem.go", "x.pem.txt", "history.py", "order_history",
    "main.tf", "variables.tf", "terraform.tfvars", "charts/a/templates/secrets.yaml", "secret.yaml", "settings.xml",
    "gradle.properties", "auth.json", "config", "hosts.yml", ".claude/settings.json", ".codex/config.toml",
    ".config/fish/config.fish", "src/chromium/a.cc", ".aws/config", "package-lock.json",
]  # fmt: skip


@pytest.mark.parametrize("path", HIDDEN_NAMES)
def test_sandbox_and_corpus_hide_the_same_names(path: str) -> None:
    for each in (path, f"home/{path}"):
        assert is_hidden(each)
        assert Exclusion().excludes_path(each)
    assert PathRules(CREDENTIAL_FILES).may_match_any(["plain.txt", *path.split("/")])


@pytest.mark.parametrize("path", SHOWN_NAMES)
def test_examples_source_code_and_public_keys_are_shown(path: str) -> None:
    for each in (path, f"project/{path}"):
        assert not is_hidden(each)
        assert not Exclusion().excludes_path(each)


def test_ordinary_names_need_only_one_look() -> None:
    ordinary = ["main.py", "README.md", "environment", "key.go", "id_map.json", "index.html", "history", "secret"]
    assert not PathRules(CREDENTIAL_FILES).may_match_any(ordinary)


def test_a_pattern_of_the_settings_hides_a_file_from_the_corpus_too() -> None:
    patterns = patterns_of(("vault/", "!**/ca.pem"), CREDENTIAL_FILES)
    exclusion = Exclusion(state_paths=added_patterns(patterns, CREDENTIAL_FILES))
    assert exclusion.excludes_path("vault/a.md")
    assert exclusion.excludes_path("VAULT/a.md")
    assert exclusion.excludes_path("ca.pem")
