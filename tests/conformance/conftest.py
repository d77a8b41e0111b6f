"""The same server as in the HTTP tests."""

from tests.http.conftest import agents, api, place, project

__all__ = ["agents", "api", "place", "project"]
