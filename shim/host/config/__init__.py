"""The person's OpenCode configuration."""
