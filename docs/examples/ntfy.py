"""Sends what a session asks to a phone by ntfy (https://ntfy.sh), with buttons that answer. Needs Python alone.

    [[hooks]]
    on = ["permission", "question", "idle"]
    command = ["python3", "/path/to/ntfy.py", "https://ntfy.example.org", "a-topic-that-nobody-guesses"]
    reply = true

Who reads the topic can answer: use a server of your own, or a topic with access control (NTFY_TOKEN is sent as Bearer).
"""

import json
import os
import sys
import urllib.request

MOST_BUTTONS = 3
"""As many as ntfy shows."""


def message(topic, event):
    """The message about an event of a hook, as ntfy takes it."""
    urls = event.get("reply_urls", {})
    buttons = [(label, url) for label, url in urls.items() if label != "page"][:MOST_BUTTONS]
    words = event.get("ask") or event.get("prompt") or event.get("message") or event.get("reason") or ""
    return {
        "topic": topic,
        "title": f"{event['event']}: {event['title']}",
        "message": f"{words}\n{event['directory']}",
        "priority": 4 if urls else 3,
        **({"click": urls["page"]} if urls else {}),
        "actions": [{"action": "http", "label": label, "url": url, "method": "POST", "clear": True} for label, url in buttons],
    }


def main(server, topic):
    """Read the event from stdin and send it."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("NTFY_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps(message(topic, json.load(sys.stdin))).encode()
    request = urllib.request.Request(server, body, headers)  # noqa: S310 - the person's own server
    urllib.request.urlopen(request, timeout=8).close()  # noqa: S310 - the same


if __name__ == "__main__":
    main(*sys.argv[1:3])
