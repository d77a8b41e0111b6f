"""`make cluster`: NATS, servers and a front on this machine, until Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.support import is_live
from tests.process.test_serve import START_S, environment
from tests.process.test_two_servers import Server, until

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def test_a_trial_prints_what_to_attach_to_and_ends_all_at_ctrl_c(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tools.cluster", "--nodes", "1", "--directory", str(tmp_path), "--data", str(tmp_path / "data")]
    root = Path(__file__).resolve().parents[2]
    env = environment(tmp_path, SHIM_DEFAULT_AGENT="mock", SHIM_MOCK_DELAY_FACTOR="0")
    process = subprocess.Popen(argv, cwd=root, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        text = "".join(lines)
        front = Server(process, re.findall(r"attach   opencode attach (\S+) --dir", text)[0])
        pids = [int(pid) for pid in re.findall(r"pid (\d+)", text)]
        assert len(pids) == 2
        until(lambda: front.ask("POST", "/session", {})[0] == 200)
        session = front.session()
        front.prompt(session, "echo one")
        assert front.texts(session) == ["echo one", "one"]
        pids.append(int((tmp_path / "data/nats/pid").read_text()))
        process.send_signal(signal.SIGINT)
        assert process.wait(START_S) == 0
        assert not any(map(is_live, pids))
    finally:
        process.kill()
        process.communicate()
