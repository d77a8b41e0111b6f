"""What is read from outside at the end of a chaos run agrees with what the servers write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shim.cluster.nats.batches import batches, claim, encode_event
from shim.store.rows import EventRow
from tools.chaos.evidence import AgentProcess, JournalMessage, Message
from tools.chaos.readings import agent_processes, bug_reports, journal_message, message_of

LIMIT = 100_000


def row(sequence: int, body: str = "{}") -> EventRow:
    return EventRow("ses_1", sequence, f"evt_{sequence}", "2026-11-24T00:00:00Z", "item.delta", "agent", body, None)


def test_a_batch_of_a_journal_is_read() -> None:
    (batch,) = batches("server", 3, 5, [encode_event(row(5)), encode_event(row(6))], LIMIT)
    expected = JournalMessage(9, "server", 3, 5, 6, events=[(5, "evt_5"), (6, "evt_6")])
    assert journal_message(9, batch.payload) == expected


def test_a_claim_and_parts_of_a_large_event_have_no_events() -> None:
    assert journal_message(9, claim("server", 3, 5).payload) == JournalMessage(9, "server", 3, 6, 5, events=[])
    parts = list(batches("server", 3, 5, [encode_event(row(5, "x" * LIMIT))], LIMIT))
    assert [journal_message(9, part.payload).part for part in parts] == [0, 1]


def test_a_message_is_over_when_it_is_completed_or_has_failed() -> None:
    info = {"id": "msg_2", "role": "assistant", "parentID": "msg_1", "time": {"created": 1}}
    tool = {"id": "prt_2", "type": "tool", "state": {"status": "completed"}}
    parts = [{"id": "prt_1", "type": "text", "text": "one"}, tool, {"id": "prt_3", "type": "text", "text": "two"}]
    contents = {"prt_1": "one", "prt_2": "tool completed", "prt_3": "two"}
    assert message_of({"info": info, "parts": parts}) == Message("msg_2", "assistant", "msg_1", text="onetwo", parts=contents)
    assert message_of({"info": {**info, "time": {"created": 1, "completed": 2}}, "parts": []}).is_over
    failure = message_of({"info": {**info, "error": {"name": "x"}}, "parts": []})
    assert (failure.is_over, failure.has_error) == (True, True)


def test_a_living_agent_is_found_with_its_session_and_its_server(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text("import sys\nsys.stdin.read()\n")
    agent = subprocess.Popen(
        [sys.executable, str(program)], cwd=tmp_path, env={**os.environ, "RUN": "a1b2c3"}, stdin=subprocess.PIPE
    )
    try:
        folders = {str(tmp_path): "ses_1"}
        of_node = list(agent_processes("a1b2c3", str(program), {os.getpid(): "node1"}, folders))
        assert of_node == [AgentProcess(agent.pid, "ses_1", "node1")]
        assert list(agent_processes("a1b2c3", str(program), {}, {})) == [AgentProcess(agent.pid, "", "")]
        assert list(agent_processes("d4e5f6", str(program), {}, {})) == []
    finally:
        agent.communicate()
    assert list(agent_processes("a1b2c3", str(program), {}, {})) == []


def test_a_log_with_a_traceback_reports_a_bug() -> None:
    assert bug_reports("all is well\nTraceback (most recent call last):\n") == ["Traceback (most recent call last):"]
