"""Reading files, directory listings and metadata."""
