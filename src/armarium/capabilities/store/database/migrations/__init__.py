"""The schema, as numbered steps."""
