"""The progress of indexing, for `dir2mcp` and for `armarium up`."""
