"""Child processes, their environment and families, and agents' pipes."""
