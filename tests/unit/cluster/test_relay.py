"""What a server of a cluster tells another one of a client's request."""

from __future__ import annotations

from shim.cluster.relay import headers_to_forward


def test_credentials_and_headers_of_the_connection_stay_here() -> None:
    """The owner must not get a password that is not its own, nor believe a proxy that it does not know."""
    kept = {"Content-Type": "application/json", "X-Opencode-Directory": "/work", "User-Agent": "opencode/1.18"}
    dropped = {
        "Authorization": "Basic eDp5",
        "Cookie": "opencode_session_4096=t",
        "Host": "here:4096",
        "Origin": "http://here:4096",
        "Content-Length": "7",
        "Transfer-Encoding": "chunked",
        "Accept-Encoding": "gzip",
        "X-Forwarded-For": "10.0.0.1",
        "Sec-Fetch-Site": "same-origin",
        "Access-Control-Allow-Origin": "*",
    }
    assert dict(headers_to_forward({**dropped, **kept})) == kept
    assert headers_to_forward({name.lower(): value for name, value in dropped.items()}) == ()
