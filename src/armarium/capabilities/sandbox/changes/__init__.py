"""Changes to files and directories: write, remove, copy, move."""
