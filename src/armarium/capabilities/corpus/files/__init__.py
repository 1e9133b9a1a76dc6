"""The files of the directory: discovery, watching, archives, and what is excluded."""
