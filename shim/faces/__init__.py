"""The faces: each turns changes into events, state into answers, and bodies into commands. None knows another."""
