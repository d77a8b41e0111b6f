"""An ACP agent with two models: says which process and model answers, and what it was asked. `die` ends it in the middle."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MODEL = {"now": "small"}


def write(**message: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def options() -> list[dict[str, Any]]:
    """Its only option."""
    rows = [{"value": name, "name": name.title()} for name in ("small", "large")]
    return [{"id": "model", "category": "model", "type": "select", "currentValue": MODEL["now"], "options": rows}]


def say(text: str) -> None:
    """A piece of its answer."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    write(method="session/update", params={"sessionId": "s", "update": update})


for line in sys.stdin:
    told = json.loads(line)
    method, params = told.get("method"), told.get("params", {})
    result: dict[str, Any] = {}
    if method == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {}}
    elif method == "session/new":
        result = {"sessionId": "s", "configOptions": options()}
    elif method == "session/set_config_option":
        MODEL["now"] = params["value"]
        result = {"configOptions": options()}
    elif method == "session/prompt":
        text = params["prompt"][-1]["text"]
        say(f"{os.getpid()} {MODEL['now']} was told: {text}")
        if text.endswith("die"):
            os._exit(9)
        result = {"stopReason": "end_turn"}
    else:
        continue
    write(id=told["id"], result=result)
