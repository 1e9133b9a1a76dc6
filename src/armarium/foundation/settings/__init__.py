"""The settings of the server: their model, where they come from, and the secrets they refer to."""
