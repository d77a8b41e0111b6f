"""All that is known of Claude Code."""
