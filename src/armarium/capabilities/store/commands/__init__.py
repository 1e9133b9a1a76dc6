"""`armarium store`: index, reindex, export and import."""
