"""The `armarium` command and the host that runs the commands of capabilities."""
