"""The gateway: many MCP servers behind one address, each caller seeing only theirs."""
