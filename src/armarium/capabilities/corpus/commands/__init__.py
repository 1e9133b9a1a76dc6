"""The `dir2mcp` command: one directory, indexed and served."""

VERSION = "0.4.0"
"""The version of the contract, which is what clients are told."""
