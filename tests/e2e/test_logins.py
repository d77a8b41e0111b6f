"""The logins of real programs, begun by a client. Their pages are on other machines, so that no login is completed."""

from __future__ import annotations

import pytest

from .support.bench import CLAUDE, Bench, nightly

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize("server", [CLAUDE, *nightly("claude-agent-acp")], indirect=True)
def test_a_login_shows_its_link_until_it_is_cancelled(server: Bench) -> None:
    name = server.shim.provider
    assert server.api.get("/provider/auth")[name][0]["type"] == "oauth"
    told = server.api.post(f"/provider/{name}/oauth/authorize", {"method": 0})
    assert told["url"].startswith("https://claude.")
    assert told["method"] == "code"
    connect = f"/api/integration/{name}/connect/oauth"
    attempt = server.api.post(connect, {"methodID": "login"})["data"]
    path = f"{connect}/{attempt['attemptID']}"
    assert (attempt["url"] != told["url"], server.api.get(path)["data"]["status"]) == (True, "pending")
    server.api.call("DELETE", path)
