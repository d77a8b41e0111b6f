"""The face for agents and other clients of the Model Context Protocol: sessions as tools (docs/delegation.md)."""
