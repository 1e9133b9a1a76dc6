"""Connections to the servers behind the gateway: one per server, opened on demand and reopened after failures."""
