"""The store: files kept durably for many tenants, and found again."""
