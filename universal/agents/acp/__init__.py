"""All that is known of the Agent Client Protocol and of the agents that speak it."""
