"""The default deny list: what agents may not write, because it runs or configures programs without anyone's asking."""

from __future__ import annotations

DENY_WRITE: tuple[str, ...] = (
    # Continuous integration, editors, containers and package managers. A dependency's own files have no such effect.
    "**/.github/workflows/", "**/.github/actions/", "**/.forgejo/workflows/", "**/.gitea/workflows/", ".gitlab-ci.yml",
    ".gitlab-ci.yaml", "**/.gitlab/ci/", ".circleci/", ".buildkite/", ".woodpecker/", ".woodpecker.yml",
    ".woodpecker.yaml", ".drone.yml", ".travis.yml", ".cirrus.yml", "appveyor.yml", ".appveyor.yml",
    "azure-pipelines.yml", "azure-pipelines.yaml", ".azure-pipelines/", "bitbucket-pipelines.yml", "Jenkinsfile*",
    ".tekton/", "cloudbuild.yaml", "buildspec.yml", ".builds/", ".build.yml", ".readthedocs.yml", ".readthedocs.yaml",
    ".semaphore/", ".teamcity/", "netlify.toml", ".drone.star", ".cirrus.star",
    ".vscode/", "*.code-workspace", ".idea/", ".vs/", ".zed/", ".fleet/", ".vim/", ".vimrc", ".gvimrc", ".nvimrc",
    ".nvim.lua", ".exrc", ".emacs", ".emacs.d/", ".dir-locals.el", ".dir-locals-2.el", ".devcontainer/",
    ".devcontainer.json", ".gitpod.yml", ".npmrc", ".yarnrc", ".yarnrc.yml", "**/.yarn/plugins/", "**/.yarn/releases/",
    ".pnp.cjs", ".pnp.loader.mjs", ".pnpmfile.cjs", ".pypirc", "pip.conf", ".condarc", ".bundle/", "**/.cargo/config",
    "**/.cargo/config.toml", ".mvn/", ".bazelrc", ".gitattributes", ".gitmodules", "**/.github/hooks/",
    "!**/node_modules/**", "!**/vendor/**", "!**/site-packages/**",
    # Git, with the short name that Windows gives it. Git takes any directory with a HEAD for a repository and obeys the
    # configuration in it.
    ".git", "git~1", "*.git/", "HEAD", "!HEAD/", ".gitconfig", ".lfsconfig", "**/.config/git/", ".githooks/", ".husky/",
    ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml",
    ".hg/", ".hgrc", ".svn/", ".bzr/", ".jj/",
    # Shells and sessions.
    ".profile", ".bash_profile", ".bash_login", ".bash_logout", ".bashrc", ".bash_aliases", ".zshenv", ".zprofile",
    ".zshrc", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".envrc",
    ".direnvrc", ".bashrc.d/", ".zshrc.d/", ".oh-my-zsh/", ".bash_completion", "**/.config/zsh/", "**/.config/nushell/",
    "**/.config/powershell/", "**/.config/nvim/", "**/.config/direnv/", "**/.config/fish/", ".mise.toml",
    "mise.toml", ".mise.local.toml", "mise.local.toml", ".mise/", "**/.config/mise/", ".tool-versions", ".asdfrc",
    ".tmux.conf", ".screenrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc",
    ".pam_environment", "**/.config/autostart/", "**/.config/systemd/", "**/.config/environment.d/",
    "LaunchAgents/", ".forward", ".procmailrc", ".mailcap", ".lessfilter", ".lesskey", ".rhosts", ".shosts",
    ".k5login", ".k5users",
    # Programs and libraries of a user, which precede those of the system.
    "**/.local/bin/", "**/.local/lib/", "**/.local/state/nix/", ".nix-profile", ".nix-defexpr/", ".nix-channels",
    "**/.cargo/bin/", "**/.cargo/env", ".rustup/", ".nvm/", ".asdf/", ".pyenv/", ".rbenv/", ".sdkman/", ".volta/",
    ".vscode-server/", ".vscode-insiders/", ".vscode-server-insiders/", ".cursor-server/", ".windsurf-server/",
    # All of it, if the root is a home directory.
    "/.config/", "/.local/share/",
    # Debuggers, interpreters and build programs that read a file of their directory, or of the user.
    ".gdbinit", ".gdbearlyinit", ".ipython/", ".jupyter/", "**/.julia/config/", "**/.gradle/init.d/",
    "**/.gradle/init.gradle", "**/.gradle/init.gradle.kts", "**/.gradle/gradle.properties", "**/.m2/settings.xml",
    ".terraformrc", ".terraform.d/", ".subversion/", ".lldbinit", ".pdbrc", ".pythonstartup",
    ".Rprofile", ".irbrc", ".pryrc", ".psqlrc", ".sqliterc",
    ".curlrc", ".wgetrc",
    # Credentials, and programs that provide them.
    ".ssh/", ".gnupg/", ".aws/", ".kube/", "**/.docker/config.json", "**/.docker/cli-plugins/", ".netrc",
    # Agents: their programs, hooks and servers. Instructions in plain text, such as AGENTS.md, are not here.
    ".mcp.json", "mcp.json", "rag-mcp.json", ".claude/", ".claude.json", ".cursor/", ".windsurf/", ".codeium/",
    ".codex/", ".gemini/", ".continue/", ".kiro/", ".roo/", ".amazonq/", ".opencode/", "opencode.json",
    "opencode.jsonc", ".aider.conf.yml", ".goose/", ".copilot/", ".trae/", ".junie/", ".qwen/", ".kilocode/",
    ".factory/", ".crush.json", "crush.json", "claude_desktop_config.json", ".openhands/", ".augment/", ".cline/",
    "**/.clinerules/hooks/",
    # Armarium.
    ".dir2mcp/", ".dir2mcp.yaml", ".armarium/", "armarium.yaml", "armarium.yml", ".armarium.yaml",
    "mcp-filesystem.yaml", "**/.config/armarium/",
)  # fmt: skip
"""Patterns in .gitignore syntax. Code that a person runs on purpose, such as a Makefile, is not here."""
