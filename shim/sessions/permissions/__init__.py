"""Requests for permission, questions, grants, and trust in a project, of one session."""
