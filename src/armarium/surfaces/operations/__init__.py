"""What a server tells about itself: its status, calls, metrics over time, keys, settings and checks."""
