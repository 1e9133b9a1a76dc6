"""How callers reach the capabilities."""
