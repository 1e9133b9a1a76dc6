"""Secrets for servers: tokens lent by callers and capability tokens issued by the gateway."""
