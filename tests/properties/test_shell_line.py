"""Whatever rules allow of a line, a shell runs nothing else: lines at random, run with a `git` and an `rm` that only tell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from shim.projection.opencode1.shell_line import commands_of
from tests.conftest import LAW_EXAMPLES
from universal.permissions import Rule, decide

PIECES = (
    *(
        "git a",
        "git ",
        "rm x",
        "rm x",
        "'",
        '"',
        "`",
        "$(",
        ")",
        "(",
        ";",
        "&",
        "&&",
        "|",
        "||",
        "\n",
        "#",
        " # ",
        " ",
        "\\",
        "$'",
    ),
    *("<<A\n", "\nA\n", "<(", "{ ", "; }", "$((", "))", "2>&1", "&>/dev/null", "|&", "!", "${x:-", "}", "\\\n", "<<<", "\t", "="),
    *("[[ ", "]]", "((", "coproc ", "\r"),
)
RULES = [Rule("bash", "git *", "allow")]
STUBS = "exec 9>&1 1>/dev/null 2>/dev/null; git() { :; }; rm() { echo RAN >&9; }\n" + 'eval "$LINE"'
SHELL_S = 10
"""For one line; it waits for nothing."""


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_runs_that_was_not_allowed(tmp_path: Path, shell: str, seed: int) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    random = Random(seed)
    allowed = 0
    while allowed < min(LAW_EXAMPLES // 5, 1000):
        line = "git " + "".join(random.choice(PIECES) for _ in range(random.randint(2, 9)))
        if "rm x" not in line or decide("bash", commands_of(line), RULES) != "allow":
            continue
        allowed += 1
        done = subprocess.run(
            [path, "-c", STUBS],
            env={"PATH": "/nonexistent", "LINE": line},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SHELL_S,
            check=False,
        )
        assert b"RAN" not in done.stdout, line
