"""The face of OpenCode 1, the wire of 1.x clients."""
