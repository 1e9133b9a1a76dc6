"""No caller reads or writes the files of a server of this user: its state, its settings, its keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from armarium.capabilities.sandbox.manifest import open_capability
from armarium.facilities import facilities_for
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.own_files import private_places
from armarium.foundation.settings.loader import load_settings
from armarium.settings import Settings
from support.agent_server import installed_command
from support.client import connected
from support.corpus_calls import answer, refusal
from support.sandbox_in_process import Tools, between
from support.server import ServerProcess
from support.trees import make_tree, picture

CANARY = "canary-77c0-of-another-server"
STATE = ".local/state/armarium"
GRANTS = ("keys.json", "trust.json", "console-links/0a1b", "secret.token", "state.key")
"""What makes its writer an administrator, the owner, or grants trust."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user with another server."""
    home = tmp_path / "home"
    make_tree(home, {f"{STATE}/{name}": CANARY for name in GRANTS})
    make_tree(home, {"notes.txt": "n", "evil/armarium/keys.json": "{}"})
    for name in GRANTS:
        (home / STATE / name).chmod(0o600)
    (home / "to-state").symlink_to(".local/state")
    (home / "to-token").symlink_to(f"{STATE}/secret.token")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME")
    return home


@asynccontextmanager
async def agent(
    root: Path, values: Mapping[str, Any] | None = None, *, config: Path | None = None, **more: Any
) -> AsyncGenerator[Tools]:
    """The sandbox of a server whose own state is elsewhere."""
    config = config or root.parent / "server.yaml"
    roots = [{"name": "w", "path": str(root), "allowed_tools": ["*"], **more}]
    given = {"state_dir": str(root.parent / "elsewhere"), "sandbox": {"roots": roots}, **(values or {})}
    config.write_text(yaml.safe_dump(given))
    settings: Any = load_settings(Settings, config)
    async with open_capability(settings.sandbox, facilities_for(settings)) as capability:
        yield Tools({tool.name: tool for tool in capability.tools})


@pytest.mark.parametrize("above", [STATE, "to-state/armarium", ".LOCAL/State/armarium"])
@pytest.mark.parametrize("name", GRANTS)
async def test_the_state_of_another_server_is_neither_read_nor_written(home: Path, above: str, name: str) -> None:
    path = f"{above}/{name}"
    before = picture(home)
    async with agent(home, deny_write=False) as tools:
        for tool, arguments in (
            ("read_file", {"root": "w", "path": path}),
            ("write_file", {"root": "w", "path": path, "content": "{}"}),
            ("write_file", {"root": "w", "path": path, "content": "{}", "mode": "append"}),
            ("create_folder", {"root": "w", "path": f"{above}/console-links/new"}),
            ("copy", between("w:notes.txt", f"w:{path}")),
            ("move", between("w:notes.txt", f"w:{path}")),
            ("copy", between(f"w:{path}", "w:taken")),
        ):
            error = await tools.fails(tool, **arguments)
            # The names of some tell first that they hold credentials.
            assert error.code in ("PATH_IGNORED", "CREDENTIALS_HIDDEN", "NOT_FOUND"), tool
    assert picture(home) == before


async def test_the_state_of_another_server_is_not_found_moved_or_removed(home: Path) -> None:
    before = picture(home)
    async with agent(home, deny_write=False) as tools:
        found = await tools.call("grep", root="w", pattern="canary")
        listed = await tools.call("list_folder", root="w", path=".local/state")
        for path in ("to-token", STATE):
            assert (await tools.fails("read_file", root="w", path=path)).code == "PATH_IGNORED"
        for path in (".local", ".local/state", STATE):
            assert (await tools.fails("remove_folder", root="w", path=path)).code == "PATH_IGNORED"
            assert (await tools.fails("move", **between(f"w:{path}", "w:x"))).code == "PATH_IGNORED"
        assert (await tools.copy("w:.local", "w:copied"))["skipped"] == []
    assert (found["matches"], listed["entries"]) == ([], [])
    assert not (home / "copied/state/armarium").exists()
    shutil.rmtree(home / "copied")
    assert picture(home) == before


async def test_state_that_does_not_exist_yet_cannot_be_brought_in(home: Path) -> None:
    shutil.rmtree(home / ".local")
    (home / "to-evil").symlink_to("evil")
    make_tree(home, {"tree/a.txt": ""})
    (home / "tree/state").symlink_to("../evil")
    async with agent(home, deny_write=False) as tools:
        for source, dest in (("evil", ".local/state"), ("to-evil", ".local/state"), ("tree", ".local")):
            error = await tools.fails("move", **between(f"w:{source}", f"w:{dest}"))
            assert error.code in ("PATH_IGNORED", "WRITE_DENIED")
        copied = await tools.copy("w:tree", "w:.local")
        await tools.copy("w:evil/armarium", "w:.local/state/armarium.new")
        await tools.copy("w:evil", "w:.local/state")
    assert "tree/state" in copied["skipped"]
    assert not (home / STATE).exists()


async def test_the_state_is_protected_where_its_directory_was_linked_away(home: Path, tmp_path: Path) -> None:
    (home / ".local/state").rename(tmp_path / "data")
    (home / ".local/state").symlink_to(tmp_path / "data")
    async with agent(home, deny_write=False) as tools:
        await tools.call("remove_file", root="w", path=".local/state")
        error = await tools.fails("write_file", root="w", path=f"{STATE}/keys.json", content="{}")
    assert error.code == "PATH_IGNORED"


@pytest.mark.parametrize("place", [STATE, f"{STATE}/console-links"])
async def test_the_state_of_servers_is_no_root(home: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        async with agent(home / place, config=home / "c.yaml"):
            pass


def test_the_state_is_found_where_its_file_system_is_mounted_again(home: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount")
    script = (
        f"import sys; from {private_places.__module__} import private_places; print(private_places([], sys.argv[1]))"
    )
    mounted = [
        "sh",
        "-c",
        'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2"',
        "sh",
        home,
        again,
        sys.executable,
        script,
    ]
    done = subprocess.run(["unshare", "-rm", *mounted], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str([STATE])


SETTINGS_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {"root": "w", "path": "conf/server.yaml"}, "CREDENTIALS_HIDDEN"),
    ("read_file", {"root": "w", "path": "to-conf/server.yaml"}, "CREDENTIALS_HIDDEN"),
    ("read_file", {"root": "w", "path": "alias"}, "CREDENTIALS_HIDDEN"),
    ("hash_file", {"root": "w", "path": "conf/server.yaml", "algorithm": "sha256"}, "CREDENTIALS_HIDDEN"),
    ("copy", between("w:conf/server.yaml", "w:taken"), "CREDENTIALS_HIDDEN"),
    ("write_file", {"root": "w", "path": "conf/server.yaml", "content": ""}, "WRITE_DENIED"),
    ("write_file", {"root": "w", "path": "conf/SERVER.yaml", "content": ""}, "WRITE_DENIED"),
    ("write_file", {"root": "w", "path": "to-conf/server.yaml", "content": ""}, "WRITE_DENIED"),
    ("write_file", {"root": "w", "path": "alias", "content": "", "mode": "append"}, "WRITE_DENIED"),
    ("remove_file", {"root": "w", "path": "conf/server.yaml"}, "WRITE_DENIED"),
    ("remove_folder", {"root": "w", "path": "conf"}, "WRITE_DENIED"),
    ("move", between("w:conf", "w:other"), "WRITE_DENIED"),
    ("move", between("w:conf/server.yaml", "w:other"), "WRITE_DENIED"),
    ("move", between("w:plain.txt", "w:conf/server.yaml"), "WRITE_DENIED"),
    ("copy", between("w:plain.txt", "w:conf/server.yaml"), "WRITE_DENIED"),
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A root with the settings file of its server, under a name of the operator's choice."""
    root = tmp_path / "project"
    make_tree(root, {"conf/other.yaml": "", "plain.txt": "p"})
    (root / "to-conf").symlink_to("conf")
    (root / "alias").symlink_to("conf/server.yaml")
    return root


@pytest.mark.parametrize(("tool", "arguments", "code"), SETTINGS_CALLS, ids=lambda value: str(value)[:60])
async def test_the_settings_file_of_the_server_is_listed_but_neither_read_nor_changed(
    project: Path, tool: str, arguments: dict[str, Any], code: str
) -> None:
    async with agent(project, config=project / "conf/server.yaml") as tools:
        before = picture(project)
        error = await tools.fails(tool, **arguments)
        listed = await tools.call("list_folder", root="w", path="conf")
    assert error.code == code
    assert [entry["name"] for entry in listed["entries"]] == ["other.yaml", "server.yaml"]
    assert picture(project) == before


async def test_a_settings_file_that_is_a_link_protects_its_target(project: Path) -> None:
    (project / "conf/real").write_text("")
    (project / "conf/linked.yaml").symlink_to("real")
    async with agent(project, config=project / "conf/linked.yaml") as tools:
        for path in ("conf/linked.yaml", "conf/real"):
            assert (await tools.fails("read_file", root="w", path=path)).code == "CREDENTIALS_HIDDEN"
            assert (await tools.fails("remove_file", root="w", path=path)).code == "WRITE_DENIED"


async def test_what_the_operator_does_not_hide_or_deny_includes_the_settings_file(project: Path) -> None:
    config = project / "conf/server.yaml"
    shown = {"security": {"hide_credentials": False}}
    async with agent(project, shown, config=config) as tools:
        await tools.call("read_file", root="w", path="conf/server.yaml")
        assert (await tools.fails("write_file", root="w", path="conf/server.yaml", content="")).code == "WRITE_DENIED"
    async with agent(project, shown, config=config, deny_write=False) as tools:
        await tools.call("write_file", root="w", path="conf/server.yaml", content="")


async def test_mcp_filesystem_denies_writing_its_settings_where_it_denies_writing(project: Path) -> None:
    roots = [
        {"name": "plain", "path": str(project), "allowed_tools": ["*"]},
        {"name": "strict", "path": str(project / "conf"), "allowed_tools": ["*"], "deny_write": True},
    ]
    config = project / "conf/server.yaml"
    config.write_text(yaml.safe_dump({"host": "127.0.0.1", "port": 0, "roots": roots}))
    with ServerProcess([installed_command("mcp-filesystem"), "--config", str(config)]) as server:
        async with connected(server.url) as client:
            read = await client.call("read_file", root="strict", path="server.yaml")
            denied = await client.fails("write_file", root="strict", path="server.yaml", content="x")
            await client.call("write_file", root="plain", path="conf/server.yaml", content="x")
    assert "roots" in read["content"]
    assert denied["code"] == "WRITE_DENIED"


async def test_files_with_secrets_of_the_server_do_not_exist_for_callers(project: Path) -> None:
    make_tree(
        project,
        {
            "tls/chain": "c",
            "tls/private": CANARY,
            "dsn": f"postgresql://u@127.0.0.1/d?sslkey={project}/client&passfile={project}/passwords",
        },
    )
    values = {
        "server": {"tls": {"certificate": str(project / "tls/chain"), "key": str(project / "tls/private")}},
        "security": {"auth": f"file:{project / 'token'}", "hide_credentials": False},
        "store": {"dsn": f"${{file:{project / 'dsn'}}}"},
    }
    async with agent(project, values) as tools:
        for path in ("tls/chain", "tls/private", "token", "dsn", "client", "passwords"):
            assert (await tools.fails("read_file", root="w", path=path)).code == "PATH_IGNORED"
            assert (await tools.fails("write_file", root="w", path=path, content="")).code == "PATH_IGNORED"
        assert (await tools.call("list_folder", root="w", path="tls"))["entries"] == []


async def test_a_corpus_of_a_home_does_not_show_the_token_of_another_server(home: Path) -> None:
    config = home / "conf/server.yaml"
    make_tree(home, {"conf/own-key": CANARY})
    settings = {
        "server": {"port": 0},
        "security": {"auth": "none", "hide_credentials": False},
        "state_dir": str(home.parent / "elsewhere"),
        "corpus": {"root": str(home), "state_dir": str(home.parent / "index")},
        "sandbox": {"roots": [{"name": "w", "path": str(home), "allowed_tools": ["*"]}]},
    }
    config.write_text(yaml.safe_dump(settings))
    environ = {"HOME": str(home), "XDG_STATE_HOME": ""}
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)], environ=environ) as server:
        async with connected(server.url) as client:
            for path in (f"{STATE}/secret.token", f"{STATE}/state.key", "to-token", "conf/server.yaml"):
                assert (await refusal(client, "open_file", rel_path=path))["code"] == "FORBIDDEN", path
            await answer(client, "open_file", rel_path="notes.txt")


def test_relative_settings_files_are_known_by_their_absolute_path(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    Path("conf/other.yaml").write_text("state_dir: /elsewhere\n")
    assert load_settings(Settings, Path("conf/other.yaml"), environ=os.environ).files == (project / "conf/other.yaml",)
