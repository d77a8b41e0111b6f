#!/usr/bin/env python3
"""An agent that costs nothing: speaks Claude Code's stream-json as recorded, and says what the prompt asks for.

    [deltas:N]         N pieces of text, as fast as the pipe takes them
    [rate:R]           R of them a second; each then carries when it was written (time.monotonic_ns)
    [arrival:1]        one piece that says when the prompt was read (time.monotonic_ns)
    [parts:N]          N text blocks in messages of ten, for conversations with many parts
    [messages:N]       N messages of one text block
    [output:N]         a command whose output is N bytes
    [hooks:N]          N calls of Read that wait for the server's PreToolUse hook; the answer has the nanoseconds of each
    [line:N]           a line of N bytes that is no message, then the answer
    [lines:N]          N short lines that nobody knows, then the answer
    [die:1]            kill -9 of itself in the middle of the answer
    [hang:1]           first words, then nothing until it is interrupted or killed

It stands for the agent in measurements, where only the server is to be measured. Started as `SHIM_CLAUDE_BIN`; the text of
its lines is what compat_fixtures/agents/claude/2.1.330/text.jsonl has, with the ids replaced.
"""

import json
import os
import re
import signal
import sys
import time

VERSION = "2.1.330 (Claude Code)"
SESSION = "a553eb86-3b83-454d-bebe-455731282906"
USAGE = {"input_tokens": 120, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
WORD = "word{:05} "
HERE = "<here>"
"""Where a piece's text stands in its line, while that is made."""
MODEL = {"value": "default", "displayName": "Default", "description": "None"}


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")


def event(inner, message):
    say(stream_event(inner, message))


def stream_event(inner, message):
    return {"type": "stream_event", "event": inner, "session_id": SESSION, "parent_tool_use_id": None,
            "uuid": "8f35c96c-ee96-4880-a5aa-f424dfe77a23", "api_message_id": message}  # fmt: skip


def line_of(inner, message):
    """What stands before and behind HERE in the line."""
    return (json.dumps(stream_event(inner, message)) + "\n").split(HERE)


def number(name, prompt):
    asked = prompt.rstrip().rpartition("\n")[2]  # what was said before may stand above it
    found = re.search(rf"\[{name}:(\d+)\]", asked)
    return int(found.group(1)) if found else 0


def stream_block(index, message, words, rate):
    event({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}, message)
    said, began = [], time.monotonic()
    # Made once: a hundred of these programs, each of which made every line anew, took a processor of their own.
    head, tail = line_of({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": HERE}}, message)
    sys.stdout.flush()
    for at in range(words):
        word = WORD.format(at)
        if rate:
            time.sleep(max(0.0, began + at / rate - time.monotonic()))
            word = f"t={time.monotonic_ns()};"
            os.write(1, (head + word + tail).encode())
        else:
            sys.stdout.write(head + word + tail)
        said.append(word)
    event({"type": "content_block_stop", "index": index}, message)
    return {"type": "text", "text": "".join(said)}


def stream_message(count, blocks, words, rate):
    id_ = f"msg_{count:020}"
    head = {"id": id_, "type": "message", "role": "assistant", "model": "claude-opus-5-5", "stop_reason": None,
            "stop_sequence": None, "usage": USAGE}  # fmt: skip
    event({"type": "message_start", "message": {**head, "content": []}}, id_)
    content = [stream_block(index, id_, words, rate) for index in range(blocks)]
    for block in content:
        say({"type": "assistant", "message": {**head, "content": [block]}, "parent_tool_use_id": None, "session_id": SESSION,
             "uuid": "b1774135-0dad-487e-9a06-34117a006d86"})  # fmt: skip
    event(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 20}},
        id_,
    )
    event({"type": "message_stop"}, id_)


def floods(prompt):
    """What no agent should do."""
    sys.stdout.flush()
    for size in (min(2**20, number("line", prompt) - at) for at in range(0, number("line", prompt), 2**20)):
        sys.stdout.write("x" * size)
    if number("line", prompt):
        sys.stdout.write("\n")
    for at in range(number("lines", prompt)):
        say({"type": "nobody_knows_me", "number": at})


def command(size):
    """A tool call and its output."""
    head = {"id": "msg_tool", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "stop_reason": "tool_use",
            "stop_sequence": None, "usage": USAGE}  # fmt: skip
    call = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": "Bash", "input": {"command": "cat big.log"}}
    common = {"parent_tool_use_id": None, "session_id": SESSION}
    say({"type": "assistant", "message": {**head, "content": [call]}, **common, "uuid": "b1774135-0dad-487e-9a06-34117a006d87"})
    line = "a line of sixty-three characters that a build has written to it\n"
    result = {"tool_use_id": call["id"], "type": "tool_result", "content": line * (size // len(line)), "is_error": False}
    say({"type": "user", "message": {"role": "user", "content": [result]}, **common,
         "uuid": "82b9b1e9-9dc6-48b3-9362-f8070973d82c"})  # fmt: skip


def hooks(count):
    """Nanoseconds from the request of a hook, written, to its answer, read; each for another file of the project."""
    taken = []
    for at in range(count):
        id_ = f"hook{time.monotonic_ns()}"
        call = {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_use_id": f"toolu_{id_}", "session_id": SESSION,
                "cwd": os.getcwd(), "permission_mode": "default",
                "tool_input": {"file_path": f"{os.getcwd()}/file{at}.py"}}  # fmt: skip
        request = {"subtype": "hook_callback", "callback_id": "permission", "input": call, "tool_use_id": f"toolu_{id_}"}
        line = json.dumps({"type": "control_request", "request_id": id_, "request": request}) + "\n"
        sys.stdout.flush()
        began = time.monotonic_ns()
        os.write(1, line.encode())
        while id_ not in sys.stdin.readline():
            pass
        taken.append(time.monotonic_ns() - began)
    return taken


def hook_times(message, count):
    """A text block with the times of so many hooks."""
    say_text(message, "".join(f"hook={ns};" for ns in hooks(count)))


def say_text(message, text):
    head = {"id": message, "type": "message", "role": "assistant", "model": "claude-opus-5-5", "stop_reason": None,
            "stop_sequence": None, "usage": USAGE}  # fmt: skip
    say({"type": "assistant", "message": {**head, "content": [{"type": "text", "text": text}]}, "parent_tool_use_id": None,
         "session_id": SESSION, "uuid": "b1774135-0dad-487e-9a06-34117a006d88"})  # fmt: skip


def turn(prompt, count, arrived):
    say({"type": "system", "subtype": "init", "cwd": "/", "session_id": SESSION, "tools": [], "mcp_servers": [],
         "model": "claude-opus-5-5", "permissionMode": "default", "slash_commands": [], "apiKeySource": "ANTHROPIC_API_KEY",
         "claude_code_version": "2.1.330", "output_style": "default", "agents": [], "skills": [], "plugins": [],
         "uuid": "86cebf9e-e204-4e59-83b5-e70e71c4ac5e"})  # fmt: skip
    parts = number("parts", prompt)
    floods(prompt)
    if number("die", prompt):
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if number("hang", prompt):
        sys.stdout.flush()
        while True:
            signal.pause()  # for whoever ends it
    if number("output", prompt):
        command(number("output", prompt))
    if number("hooks", prompt):
        hook_times(f"msg_hooks_{count}", number("hooks", prompt))
    if number("arrival", prompt):
        say_text(f"msg_arrival_{count}", f"arrived={arrived};")
    for at in range(number("messages", prompt)):
        stream_message(count * 1_000_000 + at, 1, 1, 0)
    for at in range(parts // 10):
        stream_message(count * 100_000 + at, 10, 1, 0)
    if not parts:
        stream_message(count * 100_000, 1, number("deltas", prompt) or 1, number("rate", prompt))
    say({"type": "result", "subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1,
         "result": "", "stop_reason": "end_turn", "session_id": SESSION, "total_cost_usd": 0, "usage": USAGE, "modelUsage": {},
         "permission_denials": [], "uuid": "904677e5-0d66-40d5-92df-43f181bae54c"})  # fmt: skip
    sys.stdout.flush()


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def main():
    if "--version" in sys.argv:
        print(VERSION)
        return
    count = 0
    for line in iter(sys.stdin.readline, ""):
        arrived = time.monotonic_ns()
        got = json.loads(line)
        if got["type"] == "control_request":
            answer = {
                "commands": [],
                "models": [MODEL],
                "account": {},
                "pid": 1,
                "output_style": "default",
            }
            say({"type": "control_response", "response": {"subtype": "success", "request_id": got["request_id"],
                                                          "response": answer}})  # fmt: skip
            sys.stdout.flush()
        elif got["type"] == "user":
            count += 1
            turn(text_of(got["message"]["content"]), count, arrived)


if __name__ == "__main__":
    main()
