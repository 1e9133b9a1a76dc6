"""What callers have selected: in a message, for a session, or by default."""
