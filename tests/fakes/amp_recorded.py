"""Amp as it was recorded: says the first half of a recording after a prompt, and the rest once a file is there.

    python amp_recorded.py RECORDING COUNT GO LOG [arguments of Amp]

RECORDING has a line of JSON for each message. COUNT of them are said before the file GO is there. LOG gets a line for each start.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

recording, count, go, log = sys.argv[1:5]
if "--version" in sys.argv:
    sys.stdout.write("0.0.1774569934-g39e3ec\n")
    sys.exit()
with Path(log).open("a") as starts:
    starts.write("start\n")
messages = Path(recording).read_text().splitlines()
for number, message in enumerate(messages):
    if number == 0:
        sys.stdin.readline()  # the prompt
    while number == int(count) and not Path(go).exists():
        time.sleep(0.01)
    if number == len(messages) - 1:
        sys.stdin.read()  # the result comes after the end of input
    sys.stdout.write(message + "\n")
    sys.stdout.flush()
