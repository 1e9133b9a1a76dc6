"""The registry: findings, issues and a timeline for every file of a project."""
