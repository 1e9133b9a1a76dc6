"""Plain HTTP with JSON: the tools of the capabilities, for programs that speak no MCP."""
