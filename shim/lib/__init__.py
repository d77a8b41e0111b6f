"""What every other folder may use: clock, ids, errors, logging, settings."""
