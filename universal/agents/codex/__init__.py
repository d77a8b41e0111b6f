"""All that is known of Codex."""
