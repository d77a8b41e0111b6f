"""The same server as in the tests of the first wire."""

from tests.http.conftest import agents, api, place, project

__all__ = ["agents", "api", "place", "project"]
