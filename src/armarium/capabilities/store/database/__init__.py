"""Connections, transactions, schema and SQL of the store's database."""
