"""The index that searches read: catalogue, lexical index and vector indexes, with their files on disk."""
