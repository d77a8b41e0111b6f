"""The agent of the example package (`tests/plugin_example`): repeats, imagines a command, fails, or waits to be stopped."""

from __future__ import annotations

import json
import sys

if "--version" in sys.argv:
    sys.stdout.write("parrot 3.1.4\n")
    sys.exit()


def say(**what: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


say(**{"is": "hello", "models": ["grey", "ara"]})
for line in sys.stdin:
    told = json.loads(line)
    prompt = told.get("prompt", "")
    if told.get("stop"):
        say(**{"is": "error", "message": "Stopped."})
    elif "fly" in prompt:
        say(**{"is": "error", "message": "Its wings are clipped."})
    elif "wait" in prompt:
        say(**{"is": "text", "text": "I wait"})
    elif "nonsense" in prompt:
        say(**{"is": "egg"})
        say(**{"is": "done"})
    else:
        say(**{"is": "text", "text": "Listen: "})
        say(**{"is": "tool", "id": "1", "name": "bash", "input": {"command": "echo hi", "description": "Says hi"}})
        say(**{"is": "result", "id": "1", "output": "hi\n", "exit": 0})
        for word in (f"{told.get('model')} ", "says ", prompt):
            say(**{"is": "text", "text": word})
        say(**{"is": "done"})
