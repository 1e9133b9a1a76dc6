"""Links with which a server fetches the file that a caller named in a call."""
