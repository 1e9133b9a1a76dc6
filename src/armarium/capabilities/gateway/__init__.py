"""The gateway: one address for many MCP servers, where each caller sees only the servers of their groups."""
