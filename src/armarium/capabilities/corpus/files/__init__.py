"""What is in the directory: found, unpacked, and kept out where it must not be seen."""
