"""An ACP agent without hands of its own: it asks its client for files and terminals.

A prompt is a word and what it is about:

    run LINE        in a terminal that its tool call shows; waits, asks the output, releases, tells all
    background LINE the same, but it does not wait, nor release
    many N          N terminals at once
    read PATH, read PATH LINE LIMIT, write PATH TEXT
    exec ARG...     a program without a shell
    elsewhere LINE  as run, in another directory
    allow CALL      asks a person, and says the answer
    attack FOLDER   sends the holders in a folder what a server would, with all that it knows; says how many let it in
    flood N         says so many lines
    make PATH       makes an empty file by itself
    WORD // WORD    one after the other; it does not understand others

With an argument it appends each line that it gets to that file.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from itertools import count
from pathlib import Path
from typing import Any

IDS = count()
STATE = {"prompt": None, "cancelled": False}


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read(line: str) -> dict[str, Any]:
    if sys.argv[1:]:
        with Path(sys.argv[1]).open("a") as log:
            log.write(line)
    return json.loads(line)


def ask(method: str, **params: Any) -> dict[str, Any]:
    """The answer of the client, with `result` or `error`."""
    id_ = next(IDS)
    write(id=id_, method=method, params={"sessionId": "s", **params})
    for line in sys.stdin:
        told = read(line)
        if told.get("method") == "session/cancel":
            STATE["cancelled"] = True
        elif told.get("id") == id_ and "method" not in told:
            return told
    sys.exit(0)


def update(what: str, **more: Any) -> None:
    write(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": what, **more}})


def say(text: str) -> None:
    update("agent_message_chunk", content={"type": "text", "text": text})


def run(call: str, **command: Any) -> str:
    """A command in a terminal, shown by a tool call."""
    update("tool_call", toolCallId=call, title="Shell", kind="execute", status="pending")
    made = ask("terminal/create", **command)
    if "error" in made:
        update("tool_call_update", toolCallId=call, status="failed")
        return str(made["error"]["message"])
    terminal = made["result"]["terminalId"]
    update("tool_call_update", toolCallId=call, status="in_progress", content=[{"type": "terminal", "terminalId": terminal}])
    ended = ask("terminal/wait_for_exit", terminalId=terminal)["result"]
    output = ask("terminal/output", terminalId=terminal)["result"]
    ask("terminal/release", terminalId=terminal)
    gone = ask("terminal/output", terminalId=terminal)
    update("tool_call_update", toolCallId=call, status="completed" if ended["exitCode"] == 0 else "failed")
    return json.dumps({"ended": ended, "output": output, "gone": gone.get("error", {}).get("code")})


def is_let_in(place: Path) -> bool:
    """Whether a holder takes a line from us, with the values of our environment or nothing as its secret."""
    guesses = {bytes(32), *(value.encode()[:32].ljust(32, b"\0") for value in os.environ.values())}
    found = False
    for secret in guesses:
        with socket.socket(socket.AF_UNIX) as holder:
            holder.settimeout(5)
            holder.connect(str(place))
            body = b"\x02" + secret + bytes(8)
            holder.sendall(len(body).to_bytes(4, "little") + b"A" + body)
            try:
                found = found or bool(holder.recv(1))
            except OSError:
                continue
    return found


def answer(text: str, number: int) -> str:
    if " // " in text:
        return " ".join(answer(step, 10 * number + place) for place, step in enumerate(text.split(" // ")))
    word, _, rest = text.partition(" ")
    call = f"call_{number}"
    if word == "run":
        return run(call, command=rest, outputByteLimit=1000)
    if word == "exec":
        program, *args = rest.split(" ")
        return run(call, command=program, args=args, env=[{"name": "MY", "value": "own"}])
    if word == "elsewhere":
        return run(call, command=rest, cwd="/")
    if word == "allow":
        update("tool_call", toolCallId=call, title=rest, kind="execute", status="pending", rawInput={"command": rest})
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
        told = ask("session/request_permission", toolCall={"toolCallId": call, "title": rest}, options=options)
        update("tool_call_update", toolCallId=call, status="completed")
        return str(told["result"]["outcome"].get("optionId"))
    if word == "attack":
        return f"{sum(map(is_let_in, Path(rest).glob('*/s')))} of {len(list(Path(rest).glob('*/s')))}"
    if word == "flood":
        for step in range(int(rest)):
            say(f"{step} ")
        return "done"
    if word == "make":
        Path(rest).touch()
        return "made"
    if word == "background":
        return str(ask("terminal/create", command=rest)["result"])
    if word == "many":
        made = [ask("terminal/create", command="sleep 600") for _ in range(int(rest))]
        return " ".join(str(one.get("error", {}).get("message", "made")) for one in made)
    if word not in ("read", "write"):
        return "what?"
    path, _, more = rest.partition(" ")
    if word == "write":
        update("tool_call", toolCallId=call, title="Write", kind="edit", status="in_progress", locations=[{"path": path}])
        told = ask("fs/write_text_file", path=path, content=more)
        update("tool_call_update", toolCallId=call, status="failed" if "error" in told else "completed")
    else:
        bounds = dict(zip(("line", "limit"), map(int, more.split()), strict=False))
        told = ask("fs/read_text_file", path=path, **bounds)
    return json.dumps(told.get("result", told.get("error")))


NUMBERS = count(1)
for line in sys.stdin:
    told = read(line)
    method = told.get("method")
    if method == "initialize":
        able = told["params"]["clientCapabilities"]
        assert able["fs"] == {"readTextFile": True, "writeTextFile": True}
        assert able["terminal"] is True
        write(id=told["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        write(id=told["id"], result={"sessionId": "s"})
    elif method == "session/prompt":
        STATE["cancelled"] = False
        say(answer(told["params"]["prompt"][-1]["text"], next(NUMBERS)))
        write(id=told["id"], result={"stopReason": "cancelled" if STATE["cancelled"] else "end_turn"})
