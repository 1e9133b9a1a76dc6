"""The registry's tables in `registry.sqlite`."""
