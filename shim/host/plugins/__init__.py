"""The host of a person's own tools and plugins of OpenCode: a process beside this server that runs them."""
