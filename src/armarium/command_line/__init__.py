"""Shared by the commands of all capabilities: output, exit codes, options, and the host that runs them."""
