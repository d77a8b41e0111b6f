"""The person's formatters with the real programs: a file is formatted after an agent's edit, and the diff has it."""

from __future__ import annotations

import json
import sys

import pytest

from shim.sessions.permissions.trust_gate import WITHOUT

from .support.bench import CLAUDE, Bench, bench, nightly, open_watch, turn
from .support.wire import Json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
UPPER = "import sys, pathlib, time; time.sleep(0.3); p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text().upper())"
CONFIG = {
    "formatter": {
        "upper": {"command": [sys.executable, "-c", UPPER, "$FILE"], "extensions": [".txt", ".md"]},
    },
    "permission": "allow",
}


def turn_diff(server: Bench, session: str) -> Json:
    (row,) = server.api.get(f"/session/{session}/diff")
    return row


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "pi", "claude-agent-acp", "opencode")])
def test_a_formatter_runs_after_an_edit_and_its_change_is_in_the_diffs(agent: str) -> None:
    with bench(agent, config=CONFIG) as server:
        server.models()
        rows = {row["name"]: row for row in server.api.get("/formatter")}
        assert rows["upper"] == {"name": "upper", "extensions": [".txt", ".md"], "enabled": True}
        assert not rows["prettier"]["enabled"]
        watch = open_watch(server)
        turn(server, watch, "[scene:write] go")
        assert (server.place.project / "new.txt").read_text().splitlines() == ["ALPHA", "BETA"]
        assert "+ALPHA" in turn_diff(server, watch.session)["patch"]
        edit = turn(server, watch, "[scene:read_edit] go")[-1]
        assert "ADDED LINE" in (server.place.project / "README.md").read_text()
        metadata = json.dumps(edit["state"]["metadata"])
        assert ("+ADDED LINE" in metadata, "+Added line" in metadata) == (True, False), edit


def test_claude_waits_for_a_formatter_and_edits_the_file_again_without_reading_it() -> None:
    with bench(CLAUDE, config=CONFIG) as server:
        server.models()
        watch = open_watch(server)
        file = str(server.place.project / "a.txt")
        write = {"file_path": file, "content": "one\n"}
        turn(server, watch, f"[scene:tool:Write:{json.dumps(write)}] go")
        assert "+ONE" in turn_diff(server, watch.session)["patch"]
        edits = [{"file_path": file, "old_string": old, "new_string": new} for old, new in (("ONE", "two"), ("TWO", "three"))]
        parts = turn(server, watch, f"[scene:tool:Edit:{json.dumps(edits)}] go")
        assert [part["state"]["status"] for part in parts] == ["completed", "completed"], parts
        assert (server.place.project / "a.txt").read_text() == "THREE\n"


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex")])
def test_formatters_of_a_project_run_only_when_it_is_trusted(agent: str) -> None:
    with bench(agent, config={"permission": "allow"}) as server:
        server.models()
        (server.place.project / "opencode.json").write_text(json.dumps({"formatter": CONFIG["formatter"]}))
        assert server.api.get("/formatter") == []
        watch = open_watch(server)
        at = watch.prompt("[scene:write] go")
        asked = watch.wait("question.asked", at)
        assert f"formatter.upper: {sys.executable}" in asked["questions"][0]["question"]
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [[WITHOUT]]})
        watch.wait_for_end(at)
        assert (server.place.project / "new.txt").read_text().splitlines() == ["alpha", "beta"]


def test_a_formatter_that_fails_shows_a_toast_and_the_edit_holds() -> None:
    failing = {"fails": {"command": ["sh", "-c", "echo THE-REASON >&2; exit 3"], "extensions": [".txt"]}}
    with bench(CLAUDE, config={**CONFIG, "formatter": failing}) as server:
        server.models()
        watch = open_watch(server)
        at = watch.stream.mark()
        turn(server, watch, "[scene:write] go")
        toast = watch.stream.wait(lambda event: event["type"] == "tui.toast.show", since=at, timeout_s=20)
        assert "THE-REASON" in toast["properties"]["message"]
        assert (server.place.project / "new.txt").read_text().splitlines() == ["alpha", "beta"]
