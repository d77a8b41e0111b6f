"""An ACP agent with one conversation of its own, `begun-elsewhere`. It appends the methods that it is asked to a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

LOG, DIRECTORY = Path(sys.argv[1]), sys.argv[2]
ID = "begun-elsewhere"
CAN = {"loadSession": True, "sessionCapabilities": {"list": {}, "resume": {}, "delete": {}}}
ROW = {"sessionId": ID, "cwd": DIRECTORY, "title": "Its own", "updatedAt": sys.argv[3]}


def write(**message: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(kind: str, text: str, session: str = ID) -> None:
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    write(method="session/update", params={"sessionId": session, "update": update})


for line in sys.stdin:
    told = json.loads(line)
    method, params = told.get("method"), told.get("params", {})
    with LOG.open("a") as log:
        log.write(f"{method} {params.get('sessionId', '')}\n")
    result: dict[str, Any] = {}
    if method == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": CAN}
    elif method == "session/new":
        result = {"sessionId": "begun-here"}
    elif method == "session/list":
        while Path(f"{LOG}.wait").exists():
            time.sleep(0.05)
        result = {"sessions": [ROW]}
    elif method == "session/load":
        say("user_message_chunk", "what is it?")
        say("agent_message_chunk", "It is this.")
    elif method == "session/prompt":
        Path(f"{LOG}.text").write_text("".join(part.get("text", "") for part in params["prompt"]))
        say("agent_message_chunk", "And so on.", params["sessionId"])
        result = {"stopReason": "end_turn"}
    elif method not in ("session/resume", "session/delete"):
        continue
    write(id=told["id"], result=result)
