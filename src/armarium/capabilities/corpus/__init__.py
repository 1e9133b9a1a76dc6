"""The corpus: turns a directory into search and cited answers."""
