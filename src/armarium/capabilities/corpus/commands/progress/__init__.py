"""How indexing goes, told to whoever started a server: for `armarium up` and for `dir2mcp`."""
