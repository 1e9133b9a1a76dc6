"""Readers of scanners' reports, one module per format."""
