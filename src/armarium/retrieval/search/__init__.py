"""Hybrid search: a lexical index, a vector index, and the fusion of their rankings."""
