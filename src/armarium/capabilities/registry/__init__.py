"""What is known about every file of a project: findings, issues, and how both came to be."""
