"""What the machine has: configuration, git, files, terminals, trust. It knows no agent's process."""
