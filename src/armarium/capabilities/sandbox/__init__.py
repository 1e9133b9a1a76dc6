"""Work on real directories, confined to named roots."""
