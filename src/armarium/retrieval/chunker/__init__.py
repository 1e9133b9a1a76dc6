"""Splits text into chunks at the boundaries of its structure."""
