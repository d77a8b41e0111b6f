"""All that is known of Amp."""
