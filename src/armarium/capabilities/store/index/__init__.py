"""Indexing behind writes: the outbox, its workers, and what they produce."""
