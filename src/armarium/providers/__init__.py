"""Models behind one interface each: hosted ones over HTTP, and the local ones that need neither key nor network."""
