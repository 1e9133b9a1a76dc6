"""Models that run in this process, from weights that come with a package."""
