"""The statements of `meta.sqlite`."""
