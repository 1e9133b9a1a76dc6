"""What is true of a registry, in `registry.sqlite`."""
