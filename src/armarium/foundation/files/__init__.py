"""Files below a directory: confined opening, traversal, globs, ignore rules, locks, staged entries."""
