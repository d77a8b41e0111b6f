"""A session as typed values, its changes, and their only writers."""
