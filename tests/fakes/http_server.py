"""An agent that is an HTTP server with an event stream, as `opencode serve` is: `... --port N`.

POST /echo answers the body, /say sends it as an event, /bad answers 400 with text, /hang never answers, /die exits with 3,
/end ends the stream. Every request needs the password of the environment. With `--silent` it never says where it listens;
with `--late` its first event comes half a second after the headers. `--events PATH` is that of the stream; `--busy N` answers the
first N attempts to open it with 503. With `--same-passwords` it takes that of OPENCODE_PASSWORD.
"""

import base64
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[sys.argv.index("--port") + 1])
PASSWORD = os.environ["OPENCODE_PASSWORD" if "--same-passwords" in sys.argv else "OPENCODE_SERVER_PASSWORD"]
EXPECTED = "Basic " + base64.b64encode(b"opencode:" + PASSWORD.encode()).decode()
LATE_S = 0.5
STREAM = sys.argv[sys.argv.index("--events") + 1] if "--events" in sys.argv else "/event"
BUSY = [None] * (int(sys.argv[sys.argv.index("--busy") + 1]) if "--busy" in sys.argv else 0)
EVENTS: "queue.Queue[bytes | None]" = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("authorization") != EXPECTED:
            return self.answer(401, b"")
        if self.path != STREAM:
            return self.answer(404, b"{}")
        if BUSY:
            BUSY.pop()
            return self.answer(503, b'{"code":"service_starting"}')
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if "--late" in sys.argv:
            threading.Event().wait(LATE_S)
        self.wfile.write(b'data: {"type":"server.connected","properties":{}}\n\n')
        self.wfile.flush()
        while (event := EVENTS.get()) is not None:
            self.wfile.write(b"data: " + event + b"\n\n")
            self.wfile.flush()

    def do_POST(self):
        if self.headers.get("authorization") != EXPECTED:
            return self.answer(401, b"")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == "/die":
            os._exit(3)
        if self.path == "/hang":
            threading.Event().wait()
        if self.path in ("/say", "/end"):
            EVENTS.put(body if self.path == "/say" else None)
            return self.answer(204, b"")
        return self.answer(400, b"no JSON") if self.path == "/bad" else self.answer(200, body)


server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
server.daemon_threads = True
if "--silent" not in sys.argv:
    sys.stdout.write("warming up\n")
    sys.stdout.write(f"opencode server listening on http://127.0.0.1:{PORT}" + "\n")
    sys.stdout.flush()
sys.stderr.write("a word on stderr\n")
server.serve_forever()
