"""Access to directories on this machine, confined to named roots."""
