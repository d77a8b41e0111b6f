"""What a repository would run, and whether the person trusts it."""
