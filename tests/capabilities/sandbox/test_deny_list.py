"""Agents cannot write what programs execute, or what configures Armarium, in any way that the tools offer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.sandbox.deny_list import DENY_WRITE
from armarium.foundation.errors import ArmariumError
from armarium.foundation.files.path_rules import PathRules
from support.agent_server import over_stdio, served
from support.client import ToolClient, connected
from support.sandbox_in_process import between as pair
from support.sandbox_in_process import other_file_system, sandbox
from support.server import ServerProcess
from support.trees import make_tree, picture

LOST = {"WRITE_DENIED", "CONFLICT", "NOT_FOUND", "ALREADY_EXISTS", "NOT_A_DIRECTORY", "IS_A_DIRECTORY"}
"""Errors of a call that loses a race."""
EVIL = "touch /tmp/owned\n"
ADD = "--- a\n+++ a\n@@ -0,0 +1 @@\n+evil\n"
TREE: dict[str, str | bytes | None] = {
    ".git/config": "[core]\n",
    ".git/hooks/pre-commit.sample": "",
    ".github/ISSUE_TEMPLATE/bug.md": "bug",
    ".github/workflows/ci.yml": "on: push\n",
    ".vscode/tasks.json": "{}",
    ".bashrc": "alias ls=ls\n",
    "armarium.yaml": "sandbox: {}\n",
    "evil/hooks/pre-commit": EVIL,
    "evil/workflows/evil.yml": EVIL,
    "evil/config": EVIL,
    "evil/authorized_keys": EVIL,
    "settings.json": EVIL,
    "holder/deep/repository/.git/config": "[core]\n",
    "src/main.py": "print()\n",
    "linked/a.txt": "",
}
OF_A_USER = [
    ".local/lib/python3.12/site-packages/usercustomize.py", ".local/lib/python3.12/site-packages/x.pth",
    ".local/bin/ls", ".local/state/nix/profiles/profile/bin/ls", ".nix-profile/bin/ls", ".nix-channels",
    ".nix-defexpr/default.nix", ".cargo/env", ".cargo/bin/cargo", ".cargo/config", ".cargo/config.toml",
    ".rustup/toolchains/a/bin/rustc", ".nvm/nvm.sh", ".asdf/shims/node", ".asdfrc", ".tool-versions",
    ".pyenv/shims/pip", ".mise.toml", "mise.toml", "mise.local.toml", ".mise/tasks/a", ".k5login", ".terraformrc",
    ".terraform.d/plugins/a", ".gradle/gradle.properties", ".gradle/init.d/a.gradle", ".m2/settings.xml",
    ".yarn/plugins/a.cjs", ".yarn/releases/yarn.cjs", ".yarnrc.yml", ".pnp.cjs", ".bundle/config", ".condarc",
    ".vscode-server/data/Machine/settings.json", ".cursor-server/bin/a", ".lessfilter", ".mailcap",
]  # fmt: skip
OF_AGENTS = [
    ".claude/settings.json", ".claude/settings.local.json", ".claude/commands/a.md", ".cursor/mcp.json",
    ".cursor/hooks.json", ".codex/config.toml", ".gemini/settings.json", ".clinerules/hooks/PreToolUse",
    ".github/hooks/a.json", ".openhands/setup.sh",
]  # fmt: skip
FOR_AGENTS_TO_READ = [
    "CLAUDE.md", "AGENTS.md", "GEMINI.md", "docs/AGENTS.md", ".cursorrules", ".windsurfrules", ".clinerules",
    ".clinerules/style.md", ".github/copilot-instructions.md", ".github/instructions/a.instructions.md",
]  # fmt: skip


def spellings(path: str) -> Iterator[str]:
    """What a file system may treat as the same path."""
    first, _, rest = path.partition("/")
    yield path
    yield path.upper()
    yield path[:2] + "\u200c" + path[2:]
    yield path.replace("s", "\u017f")
    for ending in (".", " "):
        yield f"{first}{ending}/{rest}" if rest else first + ending
    yield f"deep/er/{path}"


def write(path: str, **more: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"root": "workspace", "path": path, "content": EVIL, **more}


def at(tool: str, path: str) -> tuple[str, dict[str, Any]]:
    return tool, {"root": "workspace", "path": path}


def between(tool: str, source: str, dest: str) -> tuple[str, dict[str, Any]]:
    return tool, {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


ATTEMPTS: list[tuple[str, dict[str, Any]]] = [
    *(write(path) for path in (
        ".git/hooks/pre-commit", ".git/config", ".git", "new/.git/hooks/pre-commit", "sub/.git", "b.git/hooks/update",
        "evil/HEAD", ".gitmodules", ".gitattributes", ".github/workflows/evil.yml", "any/.github/workflows/evil.yml",
        ".gitlab-ci.yml", ".vscode/settings.json", ".cursor/mcp.json", ".mcp.json", "c/mcp.json", "c/rag-mcp.json",
        ".bashrc.d/x", "home/.config/nvim/init.lua", ".copilot/mcp-config.json", ".kilocode/x.json", "crush.json",
        ".dir2mcp.yaml", "armarium.yaml", ".armarium/registry.sqlite", ".envrc", ".bashrc", "home/.zshrc", ".profile",
        ".ssh/authorized_keys", ".config/fish/config.fish", ".config/starship.toml",
        ".bash_completion", ".oh-my-zsh/custom/a.zsh", ".docker/cli-plugins/docker-x", ".lfsconfig", ".forward",
        ".local/share/systemd/user/a.service", ".ipython/profile_default/startup/a.py", ".readthedocs.yaml",
        ".claude/settings.json", ".devcontainer/devcontainer.json",
        "Jenkinsfile", ".husky/pre-commit", ".pre-commit-config.yaml", "node_modules/a/.git/config",
        # other spellings
        ".GIT/hooks/pre-commit", ".Git/Hooks/Pre-Commit", ".BASHRC", "Armarium.YAML", ".g\u200cit/config",
        ".ba\u017fhrc", ".git./config", ".git /config", ".bashrc.", "GIT~1/config", "src/../.git/config",
        "/.git/config", "./.git//config", "caf\\xe9/.git/config", "caf\\xe9/.bashrc",
        # through links
        "to-git/config", "to-hooks/pre-commit", "to-bashrc", "up/.git/config", "to-github/workflows/evil.yml",
    )),
    *(write(path) for path in (*OF_A_USER, *OF_AGENTS)),
    *(write(each) for path in (".nvm/nvm.sh", ".tool-versions", ".yarn/plugins/a.cjs") for each in spellings(path)),
    between("move", "evil", ".local/lib"),
    between("copy", "evil", ".nvm"),
    write(".bashrc", mode="append"),
    write(".envrc", mode="append"),
    write(".envrc", mode="create_only"),
    write("to-bashrc", mode="append"),
    ("patch_file", {"root": "workspace", "path": ".mcp.json", "patch": ADD}),
    ("patch_file", {"root": "workspace", "path": "to-github/workflows/evil.yml", "patch": ADD}),
    *(at("remove_file", path) for path in (".git/config", ".github/workflows/ci.yml", "to-git/config", ".bashrc")),
    *(at("remove_folder", path) for path in (".git", ".git/hooks", ".github", ".vscode", "holder", "to-git/hooks")),
    *(at("create_folder", path) for path in (".husky", "a/.git/hooks", "to-git/new", ".ssh", "to-github/workflows/a")),
    between("copy", "settings.json", ".vscode/settings.json"),
    between("copy", "settings.json", ".vscode"),
    between("copy", "settings.json", "to-bashrc"),
    between("copy", "evil/hooks", ".git/hooks"),
    between("copy", "evil/hooks", ".git"),
    between("copy", "evil", "other/.git"),
    between("copy", "evil/workflows", ".github"),
    between("move", "settings.json", ".mcp.json"),
    between("move", "settings.json", "to-git/config"),
    between("move", "evil/hooks", ".git/hooks"),
    between("move", "evil/hooks", ".git"),
    between("move", "evil/workflows", ".github"),
    between("move", "evil", "other/.github"),
    between("move", "evil", ".ssh"),
    between("move", "to-bashrc", ".zshrc"),
    between("move", "to-evil", ".cursor"),
    between("move", "to-evil", "other/.github"),
    between("move", "to-evil", ".github/workflows"),
    between("move", "linked", "other/.github"),
    between("move", "to-evil", "evil/HEAD"),
    between("move", ".git", "git"),
    between("move", ".git/config", "config"),
    between("move", ".github", "github"),
    between("move", "holder", "elsewhere"),
    between("move", "holder/deep", "node_modules"),
    between("move", ".bashrc", "bashrc"),
]  # fmt: skip


def make_project(directory: Path) -> None:
    make_tree(directory, TREE)
    for link, target in {
        "to-git": ".git", "to-hooks": ".git/hooks", "to-bashrc": ".bashrc", "up": ".", "to-github": ".github",
        "to-evil": "evil", "linked/workflows": "../evil/workflows",
    }.items():  # fmt: skip
        (directory / link).symlink_to(target)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("served") / "project"
    make_project(directory)
    return directory


@pytest.fixture(scope="module")
def address(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with served(project, tmp_path_factory.mktemp("home"), "--no-index", "--no-registry") as url:
        yield url


@pytest.fixture
async def agent(address: str) -> AsyncGenerator[ToolClient]:
    async with connected(address) as client:
        yield client


def names(attempts: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    for tool, arguments in attempts:
        yield " ".join([tool, *(str(arguments[name]) for name in arguments if "path" in name or name == "mode")])


@pytest.mark.parametrize(("tool", "arguments"), ATTEMPTS, ids=names(ATTEMPTS))
async def test_an_agent_cannot_write_its_own_permission(
    agent: ToolClient, project: Path, tool: str, arguments: dict[str, Any]
) -> None:
    before = picture(project)

    error = await agent.fails(tool, **arguments)

    assert error["code"] == "WRITE_DENIED"
    assert "deny_write" in error["hint"]
    assert picture(project) == before


async def test_stdio_denies_the_same(tmp_path: Path) -> None:
    make_project(tmp_path / "project")
    before = picture(tmp_path / "project")
    async with over_stdio(tmp_path / "project", tmp_path / "home", "--no-index", "--no-registry") as agent:
        for tool, arguments in ATTEMPTS:
            error = await agent.fails(tool, **arguments)
            assert error["code"] == "WRITE_DENIED", arguments
        await agent.call("write_file", root="workspace", path="src/main.py", content="print(1)\n")
        await agent.call("write_file", root="workspace", path="src/main.py", content="print()\n")
    assert picture(tmp_path / "project") == before


async def test_a_tree_with_a_denied_path_is_not_removed_or_moved_and_the_error_names_the_path(
    agent: ToolClient,
) -> None:
    for tool, arguments in (at("remove_folder", "holder"), between("move", "holder", "elsewhere")):
        error = await agent.fails(tool, **arguments)
        assert "holder/deep/repository/.git" in error["message"]
        assert error["details"]["denied"] == "holder/deep/repository/.git"


async def test_reading_what_may_not_be_written_is_allowed(agent: ToolClient) -> None:
    read = await agent.call("read_file", root="workspace", path=".github/workflows/ci.yml")
    found = await agent.call("grep", root="workspace", pattern="on: push")
    assert read["content"] == "on: push\n"
    assert [match["file"] for match in found["matches"]] == [".github/workflows/ci.yml"]


async def test_list_roots_tells_programs_what_may_not_be_written_and_read(agent: ToolClient) -> None:
    result = await agent.result("list_roots", {})
    assert result.meta is not None
    assert ".git" in result.meta["armarium/deny_write"]["workspace"]
    assert "**/.env" in result.meta["armarium/hide_credentials"]["workspace"]
    assert list(result.structured_content["roots"][0]) == ["name", "allowed_tools", "read_only"]


async def test_a_copy_of_a_tree_leaves_out_what_agents_may_not_write(tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "state"
    make_project(root)
    async with sandbox({"w": root}, state) as tools:
        copied = await tools.copy("w:holder", "w:duplicate")
        await tools.copy("w:evil", "w:other/.github")
        linked = await tools.copy("w:linked", "w:third/.github")
    assert linked["skipped"] == ["linked/workflows"]
    assert copied["skipped"] == ["holder/deep/repository/.git"]
    assert (root / "duplicate/deep/repository").is_dir()
    assert not (root / "duplicate/deep/repository/.git").exists()
    assert (root / "other/.github/authorized_keys").exists()
    assert not (root / "other/.github/workflows").exists()


async def test_a_tree_moves_to_another_root_by_the_rules_of_that_root(tmp_path: Path) -> None:
    make_project(tmp_path / "strict")
    make_tree(tmp_path / "lax", {"repository/.git/config": "", "plain/a.txt": ""})
    roots = [
        {"name": "strict", "path": str(tmp_path / "strict"), "allowed_tools": ["*"]},
        {"name": "lax", "path": str(tmp_path / "lax"), "allowed_tools": ["*"], "deny_write": False},
    ]
    async with sandbox({}, tmp_path / "state", roots=roots) as tools:
        error = await tools.fails("move", **pair("lax:repository", "strict:r"))
        await tools.move("lax:plain", "strict:plain")
        await tools.move("strict:evil", "lax:evil/.github")
        await tools.call("write_file", root="lax", path=".git/config", content="")
    assert error.code == "WRITE_DENIED"
    assert (tmp_path / "lax/repository/.git/config").exists()
    assert not (tmp_path / "strict/r").exists()
    assert (tmp_path / "strict/plain/a.txt").exists()
    assert (tmp_path / "lax/evil/.github/workflows/evil.yml").exists()


async def test_a_move_to_another_file_system_denies_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path / "here")
    with other_file_system(tmp_path, monkeypatch) as other:
        async with sandbox({"here": tmp_path / "here", "other": other}, tmp_path / "state") as tools:
            holder = await tools.fails("move", **pair("here:holder", "other:h"))
            hook = await tools.fails("move", **pair("here:evil", "other:r/.github"))
        assert (holder.code, hook.code) == ("WRITE_DENIED", "WRITE_DENIED")
        assert list(other.iterdir()) == []
    assert (tmp_path / "here/evil/workflows/evil.yml").exists()


async def test_an_append_to_a_hard_link_does_not_reach_the_denied_name(tmp_path: Path) -> None:
    make_project(tmp_path / "root")
    os.link(tmp_path / "root/.git/config", tmp_path / "root/alias")
    async with sandbox({"w": tmp_path / "root"}, tmp_path / "state") as tools:
        for _ in range(2):
            await tools.call("write_file", root="w", path="alias", content="evil", mode="append")
    assert (tmp_path / "root/alias").read_text() == "[core]\nevilevil"
    assert (tmp_path / "root/.git/config").read_text() == "[core]\n"


async def test_what_dependencies_bring_can_be_removed(tmp_path: Path) -> None:
    brought = {"node_modules/a/.travis.yml": "", "node_modules/b/.github/workflows/ci.yml": "", "vendor/c/.npmrc": ""}
    make_tree(tmp_path / "root", brought)
    async with sandbox({"w": tmp_path / "root"}, tmp_path / "state") as tools:
        moved = await tools.fails("move", **pair("w:node_modules/b", "w:b"))
        await tools.call("remove_folder", root="w", path="node_modules")
        await tools.call("remove_folder", root="w", path="vendor")
    assert moved.code == "WRITE_DENIED"
    assert list((tmp_path / "root").iterdir()) == []


async def test_a_move_beside_a_write_never_makes_a_denied_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with sandbox({"w": root}, tmp_path / "state") as tools:

        async def attempt(tool: str, **arguments: Any) -> None:
            try:
                await tools.call(tool, **arguments)
            except ArmariumError as error:
                assert error.code in LOST  # noqa: PT017 either call may lose

        for number in range(60):
            await tools.call("create_folder", root="w", path=f"x{number}")
            await asyncio.gather(
                attempt("move", **pair(f"w:x{number}", f"w:d{number}/.github")),
                attempt("write_file", root="w", path=f"x{number}/workflows/evil.yml", content=EVIL),
            )
    rules = PathRules(DENY_WRITE)
    made = [path for path, (kind, _, _) in picture(root).items() if rules.match(path, kind == "d")]
    assert made == []


async def test_a_parent_swapped_for_a_link_never_leads_to_a_denied_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_project(root)
    make_tree(root, {"plain": None, "hook": EVIL})
    (root / "way").symlink_to("plain")
    (root / "bad").symlink_to(".git/hooks")
    async with sandbox({"w": root}, tmp_path / "state") as tools:

        async def attempt(tool: str, **arguments: Any) -> None:
            try:
                await tools.call(tool, **arguments)
            except ArmariumError as error:
                assert error.code in LOST  # noqa: PT017 either call may lose

        async def swap() -> None:
            for _ in range(30):
                await attempt("move", **pair("w:way", "w:good"))
                await attempt("move", **pair("w:bad", "w:way"))
                await attempt("move", **pair("w:way", "w:bad"))
                await attempt("move", **pair("w:good", "w:way"))

        async def use() -> None:
            for number in range(40):
                await attempt("write_file", root="w", path=f"way/a{number}", content=EVIL)
                await attempt("copy", **pair("w:evil", f"w:way/b{number}"))
                await attempt("move", **pair("w:hook", f"w:way/c{number}"))
                await attempt("create_folder", root="w", path=f"way/d{number}")
                (root / "hook").write_text(EVIL)

        await asyncio.gather(swap(), use())
    assert os.listdir(root / ".git/hooks") == ["pre-commit.sample"]


async def test_the_settings_of_a_root_change_its_list(tmp_path: Path) -> None:
    make_tree(tmp_path / "w", {"release/deploy.sh": ""})
    changed = ["release/", "!.gitattributes", "!**/.github/workflows/"]
    roots = [{"name": "w", "path": str(tmp_path / "w"), "allowed_tools": ["*"], "deny_write": changed}]
    async with sandbox({}, tmp_path / "state", roots=roots) as tools:
        for path in ("release/deploy.sh", ".git/config", "RELEASE/x"):
            assert (await tools.fails("write_file", root="w", path=path, content="")).code == "WRITE_DENIED"
        for path in (".gitattributes", ".github/workflows/ci.yml", "src/a.py"):
            await tools.call("write_file", root="w", path=path, content="")


async def test_an_invalid_pattern_keeps_the_server_from_starting(tmp_path: Path) -> None:
    roots = [{"name": "w", "path": str(tmp_path), "allowed_tools": ["*"], "deny_write": ["!"]}]
    with pytest.raises(ArmariumError, match="root 'w': invalid") as caught:
        async with sandbox({}, tmp_path / "state", roots=roots):
            pass
    assert caught.value.code == "CONFIG_INVALID"


async def test_mcp_filesystem_denies_only_what_its_settings_say(tmp_path: Path) -> None:
    make_tree(tmp_path, {"plain": None, "strict/.env": "TOKEN=1\n", "plain/.env": "TOKEN=1\n"})
    roots = [
        {"name": "plain", "path": str(tmp_path / "plain"), "allowed_tools": ["*"]},
        {"name": "strict", "path": str(tmp_path / "strict"), "allowed_tools": ["*"], "deny_write": True},
    ]
    with ServerProcess.mcp_filesystem(tmp_path, {"host": "127.0.0.1", "roots": roots}) as server:
        async with connected(server.url) as client:
            await client.call("write_file", root="plain", path=".git/hooks/pre-commit", content="x")
            read = await client.call("read_file", root="plain", path=".env")
            denied = await client.fails("write_file", root="strict", path=".git/hooks/pre-commit", content="x")
    assert read["content"] == "TOKEN=1\n"
    assert denied["code"] == "WRITE_DENIED"
    with ServerProcess.mcp_filesystem(
        tmp_path, {"host": "127.0.0.1", "roots": roots, "hide_credentials": True}
    ) as server:
        async with connected(server.url) as client:
            hidden = await client.fails("read_file", root="plain", path=".env")
    assert hidden["code"] == "CREDENTIALS_HIDDEN"


@pytest.mark.parametrize(
    ("path", "denied"),
    [
        (".git", True), ("a/.gitignore", False), ("a/.github/README.md", False), ("head/index.html", False),
        ("a/HEAD", True), ("vendor/a/.npmrc", False), ("vendor/a/.git", True), ("Makefile", False),
        ("package.json", False), ("pyproject.toml", False), ("docs/.config/app.toml", False), ("a/.config/git/x", True),
        ("LaunchAgents/x.plist", True), ("src/bashrc.md", False),
    ],
)  # fmt: skip
def test_the_list_names_what_runs_by_itself(path: str, denied: bool) -> None:
    assert PathRules(DENY_WRITE, DENY_WRITE).match(path) is denied


@pytest.mark.parametrize("path", [*OF_A_USER, *OF_AGENTS])
def test_what_a_user_and_agents_run_is_denied_in_every_spelling(path: str) -> None:
    rules = PathRules(DENY_WRITE, DENY_WRITE)
    assert [spelling for spelling in spellings(path) if not rules.match(spelling)] == []


@pytest.mark.parametrize("path", FOR_AGENTS_TO_READ)
async def test_instructions_for_agents_are_written_like_other_text(agent: ToolClient, path: str) -> None:
    await agent.call("write_file", root="workspace", path=f"text/{path.count('/')}/{path}", content="Be brief.\n")
    assert not PathRules(DENY_WRITE, DENY_WRITE).match(path)
