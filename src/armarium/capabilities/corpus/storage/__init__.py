"""What is true of a corpus, in `meta.sqlite`."""
