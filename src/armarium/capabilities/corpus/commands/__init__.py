"""The `dir2mcp` program, which indexes and serves one directory."""

VERSION = "0.4.0"
"""The version of the contract, which the server reports to clients."""
