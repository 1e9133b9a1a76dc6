"""The statements, by name."""
