"""A prompt from the request to the agent."""
