"""Finds files by name and lines by content: `in_root` is the way in; `glob` and `grep` work below a descriptor."""
