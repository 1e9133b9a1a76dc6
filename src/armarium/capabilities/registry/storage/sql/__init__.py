"""The statements of `registry.sqlite`."""
