"""Answers questions from an open index: search, answers with citations, slices of documents, status."""
