"""Worker threads: one pool for each kind of work."""
