"""The default list of files that usually contain credentials, by name."""

from __future__ import annotations

_COPIES = (".bak", ".old", ".orig", ".save", ".swp", "~")
"""What editors and people append to the name of a copy."""

_ENVIRONMENT: tuple[str, ...] = (
    "**/.env", "**/.env.*", "**/.env-*", "**/.env_*", "**/*.env", *(f"**/*.env{copy}" for copy in _COPIES),
    "**/.envrc", "**/.envrc.*",
    # Negated patterns come first, so that they cannot show what later patterns hide. An example shows only names.
    *(f"!**/.env{mark}{kind}" for mark in ".-_" for kind in ("example", "sample", "template", "dist")),
    *(f"!**/.envrc.{kind}" for kind in ("example", "sample", "template", "dist")),
    "!**/example.env", "!**/sample.env", "!**/template.env",
)  # fmt: skip

_SECRETS: tuple[str, ...] = (
    *(f"**/{name}.{kind}" for name in ("secrets", ".secrets") for kind in ("yaml", "yml", "json", "toml")),
    # The source of a chart, which has names in place of values.
    "!**/templates/secrets.yaml", "!**/templates/secrets.yml",
)  # fmt: skip

_KEYS: tuple[str, ...] = (
    *(f"**/*.{kind}{copy}" for copy in ("", *_COPIES) for kind in ("pem", "key", "p12", "pfx", "ppk")),
    "**/*.jks", "**/*.keystore", "**/*.kdbx", "**/*.kdb", "**/*.p8", "**/*.pkcs12", "**/*.agekey", "**/*.ovpn",
    *(
        f"**/id_{kind}{copy}"
        for copy in ("", *_COPIES)
        for kind in ("rsa", "dsa", "ecdsa", "ed25519", "ecdsa_sk", "ed25519_sk")
    ),
    "**/.ssh/**", "**/.gnupg/**", "**/.config/sops/age/**",
)  # fmt: skip

_PROGRAMS: tuple[str, ...] = (
    # Clouds and infrastructure.
    "**/.aws/credentials", "**/.aws/sso/**", "**/.aws/cli/**", "**/.azure/**", "**/.config/gcloud/**", "**/.boto",
    "**/.s3cfg", "**/.rclone.conf", "**/rclone.conf", "**/.kube/config", "**/*.kubeconfig", "**/.dockercfg",
    "**/.docker/config.json", "**/.terraformrc", "**/.terraform.d/credentials.tfrc.json", "**/*.tfstate",
    "**/*.tfstate.backup", "**/terraform.tfstate.*", "**/.vault-token", "**/.vault_pass", "**/.vault_pass.txt",
    "**/.vault-password", "**/credentials.json", "**/.credentials.json", "**/application_default_credentials.json",
    "**/client_secret*.json", "**/service-account*.json", "**/service_account*.json", "**/serviceaccount*.json",
    # Networks, databases, forges and registries of packages.
    "**/.netrc", "**/_netrc", "**/.authinfo", "**/.pgpass", "**/.my.cnf", "**/.mylogin.cnf", "**/.git-credentials",
    "**/.htpasswd", "**/.npmrc", "**/.pypirc", "**/.cargo/credentials", "**/.cargo/credentials.toml",
    "**/.gem/credentials", "**/.bundle/config", "**/.composer/auth.json", "**/.config/composer/auth.json",
    "**/.m2/settings.xml", "**/.m2/settings-security.xml", "**/.gradle/gradle.properties", "**/.config/gh/hosts.yml",
    "**/.config/glab-cli/config.yml",
    # Keychains, browsers and agents.
    "**/.password-store/**", "**/.local/share/keyrings/**", "**/.local/share/python_keyring/**", "**/.mozilla/**",
    "**/.thunderbird/**", "**/.config/google-chrome/**", "**/.config/chromium/**", "**/.codex/auth.json",
    "**/.gemini/oauth_creds.json", "**/.local/share/opencode/auth.json", "**/.config/github-copilot/**",
    # Armarium.
    "**/secret.token",
)  # fmt: skip

_HISTORIES: tuple[str, ...] = (
    *(f"**/.{program}_history" for program in (
        "bash", "zsh", "sh", "ksh", "python", "node_repl", "irb", "pry", "julia", "psql", "mysql", "mariadb", "sqlite",
        "rediscli",
    )),
    "**/.zhistory", "**/.histfile", "**/fish_history", "**/.lesshst", "**/.dbshell", "**/.Rhistory",
)  # fmt: skip
"""What was typed at a prompt, with passwords and tokens in arguments."""

CREDENTIAL_FILES: tuple[str, ...] = (*_ENVIRONMENT, *_SECRETS, *_KEYS, *_PROGRAMS, *_HISTORIES)
"""Names of files that usually contain credentials. Source code is not among them, whatever its name says."""
