"""The sessions: one at work, all of them, their history, prompts, permissions, undo and transfer."""
