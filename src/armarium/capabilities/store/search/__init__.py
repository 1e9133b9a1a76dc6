"""Hybrid search over indexed files."""
