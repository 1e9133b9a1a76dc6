"""What tests of several parts share: real server processes, real MCP clients, pictures of directory trees."""
