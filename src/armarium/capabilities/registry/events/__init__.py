"""Events that the registry records and publishes."""
