"""Threads: saved conversations of one person, with their questions, answers and selection of sources."""
