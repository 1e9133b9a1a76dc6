"""The administration of servers: health, reload, and changes to the configuration files."""
