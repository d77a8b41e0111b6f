"""OpenCode as an agent: its spec, its codec and the tables of its wire."""
