"""Claude Code: its spec, its codec and the tables of its wire."""
