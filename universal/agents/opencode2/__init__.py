"""OpenCode 2 as an agent. It shares no code with OpenCode 1: paths, events and messages are others."""
