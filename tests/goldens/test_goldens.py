"""What clients see of each recording is what they saw when the goldens were written; and a change is found."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shim.sessions.history import checkpoints
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from tests.goldens import files, journals
from tests.goldens.command import compare_golden, differences_since, split_differences
from tests.goldens.files import AcceptedDifference, Difference
from tests.goldens.play import play
from tests.goldens.timeline import Timeline, names, timeline
from tests.support.recordings import newest_versions
from universal.codec import Fact, Signal
from universal.events import ItemDeltaData
from universal.session.entries import Entries
from universal.session.messages import Messages
from universal.turn import Input

REPO = Path(__file__).parents[2]
EVERY = 40
"""Of the recordings, one of so many is compared in the fast suite, those of each newest version in the slow one, all nightly."""
ALL_S = 1500
OTHER_PROCESS_S = 120
CHANGED = "codex/0.169.0/bash_ask_once"
FACES = ("opencode1", "opencode2 v2_0", "opencode2 preview", "v1")


@pytest.mark.timeout(OTHER_PROCESS_S)
@pytest.mark.parametrize("name", files.names_on_disk()[::EVERY])
def test_clients_see_what_they_saw(name: str) -> None:
    left, _ = split_differences(compare_golden(name), files.accepted_differences())
    assert [str(difference) for difference in left] == []


@pytest.mark.timeout(OTHER_PROCESS_S)
@pytest.mark.parametrize("name", files.names_on_disk()[3::EVERY])
def test_clients_see_the_same_of_sessions_that_were_opened_from_checkpoints(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 1)
    monkeypatch.setattr(checkpoints, "QUIET_S", 0)
    for kind in (Messages, Entries):
        monkeypatch.setattr(kind, "LOOSE", 1)
        monkeypatch.setattr(kind, "PAGE_SIZE", 2)
    opened: list[bool] = []
    real = checkpoints.open_from

    async def open_from(state: SessionState, store: Store, *, until: int | None = None) -> bool:
        opened.append(await real(state, store, until=until))
        return opened[-1]

    monkeypatch.setattr(checkpoints, "open_from", open_from)
    left, _ = split_differences(compare_golden(name), files.accepted_differences())
    assert [str(difference) for difference in left] == []
    assert any(opened)


def test_goldens_of_a_version_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GOLDENS", tmp_path)
    scenes = {"b.1": ['["s",1]', '["s","\u2028"]'], "a": ['["t",{}]']}
    files.write("agent/1.2", scenes)
    assert (files.scenes_of("agent/1.2"), files.names_on_disk()) == (scenes, ["agent/1.2/a", "agent/1.2/b.1"])
    assert files.read("agent/1.2/b.1") == scenes["b.1"]
    files.write("agent/1.2", {"a": ['["t",2]']})
    assert files.scenes_of("agent/1.2") == {"a": ['["t",2]']}
    with pytest.raises(FileNotFoundError):
        files.read("agent/1.2/b.1")
    assert files.scenes_of("agent/1.3") == {}


def test_goldens_are_compared_with_those_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GOLDENS", tmp_path)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")
    files.write("agent/1.2", {"a": ['["s",{"n":1}]'], "b": ['["s",{"n":1}]']})
    files.write("agent/1.1", {"a": ['["s",1]']})
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "before")):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    assert differences_since("HEAD", None) == []
    files.write("agent/1.2", {"a": ['["s",{"n":1}]'], "b": ['["s",{"n":2}]']})
    files.write("agent/1.3", {"a": ['["s",3]']})
    changed = Difference("agent/1.2/b", "s", "[0].n", "1", "2")
    assert differences_since("HEAD", None) == [changed, Difference("agent/1.3/a", "s", "[0] +", "", "3")]
    assert differences_since("HEAD", {"agent/1.2/b"}) == [changed]


def test_every_recording_has_a_golden() -> None:
    assert files.names_on_disk() == names()


@pytest.mark.slow
@pytest.mark.timeout(ALL_S)
@pytest.mark.parametrize(
    "folders", [sorted(newest_versions()), pytest.param(["*"], marks=pytest.mark.nightly)], ids=["newest versions", "all"]
)
def test_clients_see_what_they_saw_in_recordings_of(folders: list[str]) -> None:
    done = subprocess.run(["scripts/goldens", "compare", *folders], cwd=REPO, capture_output=True, text=True, timeout=ALL_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_newest_version_of_each_agent_is_compared_in_ci() -> None:
    folders = newest_versions()
    assert {"claude/2.1.332", "codex/0.171.0", "acp/claude-agent-acp-0.101.0"} <= set(folders)
    assert not {"claude/2.1.197", "claude/2.1.330", "acp/claude-agent-acp-0.100.0"} & set(folders)


@pytest.mark.timeout(OTHER_PROCESS_S)
def test_a_run_in_another_process_with_another_hash_seed_sees_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.goldens", "compare", CHANGED],
        cwd=REPO,
        env=os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=OTHER_PROCESS_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(OTHER_PROCESS_S)
@pytest.mark.parametrize("name", journals.journal_names())
def test_a_journal_of_an_earlier_version_opens_to_the_same_answers(name: str) -> None:
    assert journals.differences(name) == []


# --- a change is found ----------------------------------------------------------------------------------------


def _recorded_timeline() -> Timeline:
    return timeline(CHANGED)


def _differences(changed: Timeline) -> list[Difference]:
    return files.compare(CHANGED, files.read(CHANGED), play(changed).lines())


def test_one_more_letter_in_a_text_is_found_on_every_face() -> None:
    recorded = _recorded_timeline()
    for number, step in enumerate(recorded.steps):
        deltas = [o for o in step.outputs if isinstance(o, Fact) and isinstance(o.data, ItemDeltaData)]
        if deltas:
            data = deltas[0].data
            longer = deltas[0]._replace(data=data.model_copy(update={"delta": data.delta + "!"}))
            outputs = tuple(longer if o is deltas[0] else o for o in step.outputs)
            recorded.steps[number] = replace(step, outputs=outputs)
            break
    places = [difference.place for difference in _differences(recorded)]
    assert {face for face in FACES if any(place.startswith(face) for place in places)} == set(FACES)


def test_a_turn_that_does_not_end_is_found() -> None:
    recorded = _recorded_timeline()
    ends = (Input.DONE, Input.FAILED)
    for number, step in enumerate(recorded.steps):
        outputs = tuple(o for o in step.outputs if not (isinstance(o, Signal) and o.input in ends))
        recorded.steps[number] = replace(step, outputs=outputs)
    found = _differences(recorded)
    assert "session.error" in " ".join(difference.path for difference in found)
    assert any(difference.place.startswith("after a restart: opencode1") for difference in found)


def test_an_event_that_is_new_does_not_shift_the_others() -> None:
    before = ['["s",{"type":"a","n":1}]', '["s",{"type":"b","n":2}]']
    after = [before[0], '["s",{"type":"c"}]', before[1]]
    [difference] = files.compare("r", before, after)
    assert (difference.path, difference.before) == ("[1] +c", "")


def test_a_changed_field_is_named_by_its_path() -> None:
    [difference] = files.compare("r", ['["s",{"type":"a","p":[{"n":1}]}]'], ['["s",{"type":"a","p":[{"n":true}]}]'])
    assert (difference.place, difference.path, difference.before, difference.after) == ("s", "[0] a.p.0.n", "1", "true")


def test_a_repeated_value_is_compared_as_what_it_stands_for() -> None:
    [difference] = files.compare("r", ['["a",1]', '["b",null,0]'], ['["a",1]', '["b",2]'])
    assert (difference.place, difference.before, difference.after) == ("b", "1", "2")


def test_only_listed_differences_are_accepted_and_idle_entries_are_reported() -> None:
    rows = [Difference("claude/2/x", "v1 events", "[0] a.n", "1", "2"), Difference("pi/1/x", "v1 events", "[0] a.n", "1", "2")]
    used, idle = AcceptedDifference("claude/*", "v1 *", "*.n", "why"), AcceptedDifference("amp/*", "*", "*", "why")
    assert split_differences(rows, [used, idle]) == ([rows[1]], [idle])


def test_a_wanted_difference_needs_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "differences.toml"
    listed.write_text('[[difference]]\nplace = "v1 *"\n')
    monkeypatch.setattr(files, "DIFFERENCES", listed)
    with pytest.raises(ValueError, match="no reason"):
        files.accepted_differences()
