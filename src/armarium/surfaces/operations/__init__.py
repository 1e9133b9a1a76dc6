"""The operations of a server: its status, calls, metrics over time, keys, settings and checks."""
