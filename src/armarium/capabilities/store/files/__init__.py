"""File operations of the store: reads, listings, writes, renames, history."""
