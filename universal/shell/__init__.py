"""The parts of `universal.shell_commands`: how a shell line is read. They are imported with the first line."""

LENGTH_LIMIT = 100_000
"""Characters of a line. A longer one is not understood."""
COMMANDS_LIMIT = 300
"""Commands of a line, also of one that is not understood."""
