"""Tasks, and limits on what runs at once."""
