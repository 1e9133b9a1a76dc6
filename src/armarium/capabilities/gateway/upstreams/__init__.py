"""Connections to the servers behind the gateway: one per server, opened when first needed, kept, and mended."""
