"""One module per agent: its codec and what it knows of the agent's own wire."""
