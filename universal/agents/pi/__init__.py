"""All that is known of Pi."""
