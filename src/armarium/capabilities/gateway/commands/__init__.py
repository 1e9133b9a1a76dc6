"""`armarium gateway` and `armarium rag-server`."""
