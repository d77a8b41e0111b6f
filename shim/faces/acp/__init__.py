"""The face of the Agent Client Protocol: editors are clients of the sessions, as if this server were an agent."""
