"""The only writer of a session's timeline and log."""
