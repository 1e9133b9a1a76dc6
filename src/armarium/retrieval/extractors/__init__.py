"""Extracts text from files, one module per format."""
