"""Unified diffs: reading, applying and creating them."""
