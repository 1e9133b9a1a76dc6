"""The files that name the servers behind the gateway: reading, checking, and their JSON schema."""
