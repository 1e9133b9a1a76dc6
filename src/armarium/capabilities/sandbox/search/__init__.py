"""Search by name and by content: `root_search` is the entry point; `glob` and `grep` work below a descriptor."""
