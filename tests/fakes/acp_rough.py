"""An ACP agent that is rough in one way. Arguments: a manner, and a folder for its pipe.

Manners of the prompt: `late` sends half of its text after the answer, `own` answers and works again when its pipe is written to.
Of the handshake: `silent` answers only to its first process, which tells what it offers; the next one says why on stderr.
`login` wants to be told to use the key in its environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

MANNER, FOLDER = sys.argv[1], Path(sys.argv[2])
ASKED = FOLDER / "asked"


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(kind: str, **more: Any) -> None:
    write(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": kind, **more}})


def say(text: str) -> None:
    update("agent_message_chunk", content={"type": "text", "text": text})


def prompt(id_: Any, text: str) -> None:
    half = len(text) // 2 if MANNER == "late" else len(text)
    say(text[:half])
    write(id=id_, result={"stopReason": "end_turn"})
    if MANNER == "late":
        say(text[half:])
    elif MANNER == "own":
        say((FOLDER / "pipe").read_text())


def main() -> None:
    is_refused = MANNER == "login"
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if MANNER == "silent" and ASKED.exists():
            sys.stderr.write("waiting for the sandbox\n")
            sys.stderr.flush()
        elif method == "initialize":
            methods = [{"id": "browser", "name": "Log in with Google"}, {"id": "key", "name": "Use an API key"}]
            write(id=id_, result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": methods})
        elif method == "authenticate":
            is_refused = message["params"] != {"methodId": "key"} or "GEMINI_API_KEY" not in os.environ
            write(id=id_, result={})
        elif method == "session/new" and is_refused:
            write(id=id_, error={"code": -32000, "message": "Authentication required"})
        elif method == "session/new":
            ASKED.touch()
            write(id=id_, result={"sessionId": "s"})
        elif method == "session/prompt":
            prompt(id_, "".join(block.get("text", "") for block in message["params"]["prompt"]))


main()
