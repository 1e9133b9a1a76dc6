"""Reports of scanners, read into findings."""
