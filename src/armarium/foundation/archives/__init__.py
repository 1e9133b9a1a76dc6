"""Bounded readers for archives from untrusted sources."""
