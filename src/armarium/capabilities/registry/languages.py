"""Guesses a file's language from its name."""

from __future__ import annotations

_BY_SUFFIX = {
    "bash": "shell", "c": "c", "cc": "cpp", "cfg": "ini", "clj": "clojure", "cpp": "cpp", "cs": "csharp", "css": "css",
    "cxx": "cpp", "dart": "dart", "ex": "elixir", "exs": "elixir", "erl": "erlang", "go": "go", "gradle": "groovy",
    "groovy": "groovy", "h": "c", "hcl": "hcl", "hh": "cpp", "hpp": "cpp", "hs": "haskell", "htm": "html",
    "html": "html", "ini": "ini", "ipynb": "jupyter", "java": "java", "jl": "julia", "js": "javascript",
    "json": "json", "jsx": "javascript", "kt": "kotlin", "kts": "kotlin", "lua": "lua", "m": "objective-c",
    "md": "markdown", "mjs": "javascript", "ml": "ocaml", "nim": "nim", "php": "php", "pl": "perl", "proto": "protobuf",
    "ps1": "powershell", "py": "python", "pyi": "python", "r": "r", "rb": "ruby", "rs": "rust", "rst": "rst",
    "scala": "scala", "scss": "scss", "sh": "shell", "sql": "sql", "svelte": "svelte", "swift": "swift",
    "tf": "hcl", "toml": "toml", "ts": "typescript", "tsx": "typescript", "vue": "vue", "xml": "xml", "yaml": "yaml",
    "yml": "yaml", "zig": "zig", "zsh": "shell",
}  # fmt: skip
_BY_NAME = {"dockerfile": "dockerfile", "makefile": "makefile", "gemfile": "ruby", "rakefile": "ruby"}


def language_of(path: str) -> str:
    """The language that a path speaks of; "" when it tells none."""
    name = path.rpartition("/")[2].lower()
    stem, dot, suffix = name.rpartition(".")
    return _BY_NAME.get(name) or (_BY_SUFFIX.get(suffix, "") if dot and stem else "")
