"""PostgreSQL started here, for servers without a database of their own."""
