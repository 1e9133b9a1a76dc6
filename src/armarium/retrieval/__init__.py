"""Retrieval: extracts text from files, splits it into chunks, and finds them by hybrid search."""
