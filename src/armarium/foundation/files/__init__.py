"""Files below one directory: opened without ever leaving it, walked, matched, ignored."""
