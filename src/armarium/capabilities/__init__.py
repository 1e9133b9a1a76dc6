"""What Armarium can do; one folder each, none of which knows another."""
