"""An agent that speaks ACP well until it does not: `faulty_acp.py FAULT FOLDER`.

Its first start is sound: it is asked then what it offers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
CHILD_S = 600
FLOOD_LINES = 50_000
LONG_LINE_BYTES = 40 * 2**20
HUGE_BYTES = 50 * 2**20


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(**message: object) -> None:
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def chunk(text: str) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    say(method="session/update", params={"sessionId": "s1", "update": update})


def hang() -> None:
    while True:
        time.sleep(CHILD_S)


def child() -> None:
    """A child with our pipes, that would outlive us."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang()


def fault() -> None:
    """In the middle of a turn, after the first words."""
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif FAULT == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif FAULT == "exit 0":
        os._exit(0)
    elif FAULT == "exit 1":
        sys.stderr.write("fatal: the disk is made of cheese\n")
        sys.stderr.flush()
        os._exit(1)
    elif FAULT == "hangs":
        hang()
    elif FAULT == "hangs, ignores SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hang()
    elif FAULT == "child holds the pipe":
        child()
        os._exit(0)
    elif FAULT == "child stays":
        child()
    elif FAULT == "closes stdout":
        os.close(1)
        hang()
    elif FAULT == "half a line":
        raw(b'{"jsonrpc": "2.0", "method": "session/upd')
        os._exit(0)
    elif FAULT == "garbage":
        raw(b"Segmentation fault? No.\n\x1b[31mred\x1b[0m\n\n\x00\x00\n{]\n<html>\n")
    elif FAULT == "flood of lines":
        raw(b'{"jsonrpc": "2.0", "method": "x/y", "params": {}}\n' * FLOOD_LINES)
    elif FAULT == "one endless line":
        for _ in range(LONG_LINE_BYTES // 2**20):
            raw(b"x" * 2**20)
        raw(b"\n")
    elif FAULT == "huge output":
        call = {"toolCallId": "c1", "title": "make", "kind": "execute", "status": "in_progress", "rawInput": {"command": "make"}}
        say(method="session/update", params={"sessionId": "s1", "update": {"sessionUpdate": "tool_call", **call}})
        content = [{"type": "content", "content": {"type": "text", "text": "a line of the build\n" * (HUGE_BYTES // 20)}}]
        done = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed", "content": content}
        say(method="session/update", params={"sessionId": "s1", "update": done})
    elif FAULT == "stderr flood":
        for number in range(FLOOD_LINES):
            sys.stderr.write(f"warning {number}: too much to say\n")
        sys.stderr.flush()
    elif FAULT == "invalid UTF-8":
        raw(b'{"jsonrpc": "2.0", "method": "session/update", "params": {"x": "\xff\xfe\xc3"}}\n')
    elif FAULT == "lone surrogates":
        chunk("half \ud83d a pair ")
    elif FAULT == "deep JSON":
        raw(b'{"jsonrpc": "2.0", "method": "session/update", "params": ' + b"[" * 5000 + b"]" * 5000 + b"}\n")
    elif FAULT == "wrong types":
        for params in (None, [], "x", {"sessionId": 5, "update": "x"}, {"sessionId": "s1", "update": {"sessionUpdate": ["x"]}}):
            say(method="session/update", params=params)
        say(id=[], result={})
        say(id=None, error="x")
        say(method=5, id="x")


def main() -> None:
    mark = FOLDER / "started"
    sound = not mark.exists()
    mark.touch()
    if FAULT == "dies at the start" and not sound:
        sys.stderr.write("cannot start: no licence\n")
        sys.exit(2)
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if FAULT == "hangs at the start" and not sound:
            hang()
        if method == "initialize":
            say(id=id_, result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
        elif method == "session/new":
            say(id=id_, result={"sessionId": "s1"})
        elif method == "session/prompt":
            chunk("first words ")
            fault()
            chunk("last words")
            say(id=id_, result={"stopReason": "end_turn"})
            if FAULT == "hangs after the turn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                hang()
        elif id_ is not None and method:
            say(id=id_, result={})


main()
