"""What the commands of every capability share: output, exit codes, options, and the host they run in."""
