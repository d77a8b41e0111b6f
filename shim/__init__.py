"""The server: sessions that run agent processes, and the APIs (faces) that clients use."""
