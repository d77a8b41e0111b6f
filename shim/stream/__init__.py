"""The hub of all faces: readers, replay, and the cut-off of slow readers."""
