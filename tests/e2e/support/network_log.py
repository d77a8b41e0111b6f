"""An HTTP proxy that records which hosts programs want to reach, so that a fetch is seen without a network.

It serves one page for plain HTTP and refuses every tunnel (`CONNECT`), after it has written down the host.
"""

from __future__ import annotations

import http.server
import threading
from urllib.parse import urlsplit

PAGE_WORDS = "teal-page"
"""Text of the page that every URL of plain HTTP has."""
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
STOP_S = 5


class _Handler(http.server.BaseHTTPRequestHandler):
    server: OutgoingProxy

    def do_CONNECT(self) -> None:
        self.server.hosts.append(self.path.partition(":")[0])
        self.send_error(502, "no network")

    def do_GET(self) -> None:
        self.server.hosts.append(urlsplit(self.path).hostname or "")
        page = f"<html><body><p>{PAGE_WORDS}</p></body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to stderr."""


class OutgoingProxy(http.server.ThreadingHTTPServer):
    """A running proxy on loopback. `hosts` are those that programs wanted to reach, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hosts: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead programs to the proxy."""
        return dict.fromkeys(VARIABLES, f"http://127.0.0.1:{self.server_port}")

    def close(self) -> None:
        self.shutdown()
        self._thread.join(STOP_S)
        self.server_close()
