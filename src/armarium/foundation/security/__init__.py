"""Who calls, what a caller may do, and what is trusted."""
