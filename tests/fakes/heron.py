"""An agent that can wait for a session. It answers with its pid, and tells in a file that it was started.

Prompts: `die` (ends without a word), `hang` (answers nothing), anything else (one answer: `PID: TEXT`). Files in its directory:
`dies-at-start`, `works-at-start` (it speaks without a prompt).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if "--version" in sys.argv:
    sys.stdout.write("heron 1.0.0\n")
    sys.exit()


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


with Path(os.environ["HOME"], "herons").open("a") as file:
    file.write(json.dumps({"pid": os.getpid(), "directory": os.getcwd(), "key": os.environ.get("HERON_KEY", "")}) + "\n")
say(**{"is": "hello", "models": ["grey"]})
if Path("dies-at-start").exists():
    sys.exit(3)
if Path("works-at-start").exists():
    say(**{"is": "text", "text": "I work"})
for line in sys.stdin:
    prompt = json.loads(line).get("prompt", "")
    if prompt == "die":
        sys.exit(3)
    if prompt != "hang":
        say(**{"is": "text", "text": f"{os.getpid()}: {prompt}"})
        say(**{"is": "done"})
