"""A backup of a cluster whose servers work, and its restore into an empty NATS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.test_cluster_placement import node_settings
from tests.process.test_serve import RUN, START_S, environment
from tests.process.test_two_servers import server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def shim(tmp_path: Path, *arguments: str) -> str:
    """What a command of `opencode-shim` prints."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_backup_of_a_working_cluster_is_restored(tmp_path: Path, nats: NatsServer) -> None:
    """The turn that ran at the time of the backup is ended there, once; what came after the backup is not in it."""
    copied, archive = tmp_path / "copied", tmp_path / "cluster.tar.gz"
    with server(tmp_path, **node_settings(tmp_path, nats, "one")) as one:
        idle, busy = one.session(), one.session()
        one.prompt(idle, "echo kept")
        one.begin(busy, "hang")
        until(lambda: one.get("/session/status").get(busy) == {"type": "busy"})
        assert one.ask("PATCH", f"/session/{busy}", {"title": "at work"})[0] == 200  # stored, with all that came before
        messages = one.get(f"/session/{idle}/message")
        done = shim(tmp_path, "cluster", "export", "--cluster", nats.url, "--data-dir", str(copied))
        assert "2 sessions" in done
        assert "left as it is" not in done
        assert one.get("/session/status").get(busy) == {"type": "busy"}, "the backup takes nothing away"
        one.prompt(idle, "echo later")
    shim(tmp_path, "backup", str(archive), "--data-dir", str(copied))

    restored, empty = tmp_path / "restored", NatsServer(tmp_path / "empty")
    shim(tmp_path, "restore", str(archive), "--data-dir", str(restored))
    empty.start()
    try:
        assert "2 sessions" in shim(tmp_path, "cluster", "import", "--cluster", empty.url, "--data-dir", str(restored))
        with server(tmp_path, **node_settings(tmp_path, empty, "new")) as new:
            assert new.get(f"/session/{idle}/message") == messages
            assert new.get("/session/status") == {}
            assert new.get(f"/session/{busy}")["title"] == "at work"
            new.prompt(busy, "echo on")
            assert new.texts(busy)[-2:] == ["echo on", "on"]
            events = new.get(f"/v1/sessions/{busy}/events")
            kinds = [event["type"] for event in events["events"]]
            assert (kinds.count("turn.started"), kinds.count("turn.ended")) == (2, 2), json.dumps(kinds)
    finally:
        empty.stop()
