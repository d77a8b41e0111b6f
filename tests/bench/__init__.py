"""`make bench`: our server beside native OpenCode, its peer and the floor, on the same work in turn."""
