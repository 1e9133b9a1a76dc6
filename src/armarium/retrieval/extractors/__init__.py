"""Text out of files, one module for each kind of format."""
