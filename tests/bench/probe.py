"""Asks a server for `GET /session/status` every 20 ms, in a process of its own, until its stdin ends.

    python probe.py PORT

Prints one line of JSON then: how long each answer took, in seconds.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time

EVERY_S = 0.02
ANSWER_S = 60


def main() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=ANSWER_S)
    took: list[float] = []
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        began = time.monotonic()
        connection.request("GET", "/session/status")
        connection.getresponse().read()
        took.append(time.monotonic() - began)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
