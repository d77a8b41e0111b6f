"""The face of OpenCode 2 (`/api/*`) and its dialects."""
