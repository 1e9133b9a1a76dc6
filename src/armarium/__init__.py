"""Armarium: one MCP server for everything an agent does with files."""

__version__ = "0.1.0"
