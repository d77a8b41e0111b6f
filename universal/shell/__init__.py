"""The parts of `universal.shell_commands`: how a shell line is read."""
