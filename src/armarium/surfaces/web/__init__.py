"""The JSON API: the tools of the capabilities over plain HTTP, for programs without MCP."""
