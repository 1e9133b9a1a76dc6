"""One query over many servers: source resolution, search, rank fusion and synthesis."""
