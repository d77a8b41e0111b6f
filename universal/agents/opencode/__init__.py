"""All that is known of OpenCode."""
