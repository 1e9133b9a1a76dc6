"""The corpus: one command turns a directory into cited answers."""
