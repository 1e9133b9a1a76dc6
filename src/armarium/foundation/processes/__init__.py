"""What a process may do and use: isolation, system call filter, memory."""
