"""The server: sessions around agent processes, and the faces that clients see."""
