"""Recording: what is scrubbed, what the report says, and a whole scene with an agent that is no agent."""

from __future__ import annotations

import json
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shim.cli.record import Wish, pack, record, report_lines
from shim.dev.record.driver import Driver, Part, SceneFailed, text_of
from shim.dev.record.homes import CANNOT, TARGETS, Place, foreign, target
from shim.dev.record.report import compare, kinds_of, lines
from shim.dev.record.scenes import SCENES, Abort, Say, Scene
from shim.dev.record.scrub import leaks, scrub
from shim.dev.record.take import choose_scenes, difference_of, packaged_version, take, version_before
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from shim.lib.settings_tables import CustomAgent
from universal.agents.acp.spec import custom_spec
from universal.registry import agents

# --- scrubbing --------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "shim-record-x1")


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("{root}/home/project/README.md", "/home/user/project/README.md"),
        ("{root}/home/.claude", "/home/user/.claude"),
        ("at http://127.0.0.1:5123/v1", "at http://127.0.0.1:8900/v1"),
        ("/opt/x/node_modules/.bin/agent", "agent"),
        ("/opt/y/node_modules/pkg/a.js", "/usr/lib/node_modules/pkg/a.js"),
        ('{{"apiKey": "abcdef123"}}', '{{"apiKey": "<secret>"}}'),
        ("key sk-ant-abcdef123456", "key <secret>"),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: <secret>"),
        ("by jane.doe@company.io", "by user@example.com"),
        ("/root/look_around", "/root/look_around"),
        ('{{"total_tokens": 12345678}}', '{{"total_tokens": 12345678}}'),
    ],
)
def test_nothing_of_this_machine_is_left(said: str, left: str, place: Place) -> None:
    text = scrub(said.format(root=place.root), place, "http://127.0.0.1:5123", "/opt/x/node_modules/.bin/agent")
    assert text == left.format()
    assert leaks(text, place) == []


def test_a_folder_named_after_the_project_is_scrubbed_too(place: Place) -> None:
    folder = re.sub(r"[^A-Za-z0-9]", "-", str(place.project))
    assert scrub(f"projects/{folder}/x.jsonl", place, "http://m", "/b") == "projects/-home-user-project/x.jsonl"


def test_the_texts_of_skills_are_left_out() -> None:
    skill = {"name": "review", "body": "x" * 1000}
    row = {"dir": "out", "msg": {"params": {"update": {"_meta": {"availableSkillDetails": [skill], "more": [1, None]}}}}}
    (line,) = [json.loads(line) for line in text_of(Part({"form": 2}, [row])).splitlines()[1:]]
    assert line["msg"]["params"]["update"]["_meta"] == {"availableSkillDetails": [{"name": "review"}], "more": [1, None]}
    assert len(skill["body"]) == 1000, "the codec has read the message as it was"


def test_leaks_in_a_recording_are_found(place: Place) -> None:
    assert leaks(f"see {place.root}", place) == [str(place.root), place.root.name]


# --- the report -------------------------------------------------------------------------------------------


def rows(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"dir": "out", "msg": message} for message in messages]


def test_new_and_removed_kinds_and_fields_are_reported() -> None:
    before = kinds_of([rows({"type": "a", "x": {"y": 1}}, {"type": "system", "subtype": "old"})])
    now = kinds_of([rows({"type": "a", "x": {"y": 1, "z": [{"deep": 1}]}}, {"type": "system", "subtype": "new"})])
    told = ["- new kind `system/new`", "- kind gone `system/old`", "- new in `a`: `x.z`"]
    assert lines(compare(before, now)) == told
    assert lines(compare(now, now)) == ["- no kind and no field is new or gone"]


def test_kinds_of_all_wires() -> None:
    asked = {"dir": "in", "msg": {"id": 1, "method": "thread/start"}}
    found = kinds_of(
        [
            [asked, *rows({"id": 1, "result": {"thread": {"id": "t"}}})],
            rows({"method": "item/started", "params": {"item": {"type": "commandExecution"}}}),
            rows({"method": "session/update", "params": {"update": {"sessionUpdate": "tool_call"}}}),
            rows({"event": {"type": "message.part.updated", "properties": {"part": {"type": "tool"}}}}),
            rows({"type": "message_update", "assistantMessageEvent": {"type": "text_delta"}}),
        ]
    )
    assert set(found) == {
        "answer to thread/start",
        "item/started commandExecution",
        "session/update tool_call",
        "message.part.updated tool",
        "message_update/text_delta",
    }


def test_keys_that_are_data_are_no_fields() -> None:
    said = {"type": "a", "input": {"any": 1}, "files": {"/a/b.txt": 1, "ok": 2}}
    assert kinds_of([rows(said)]) == {"a": {"type", "input", "files", "files.ok"}}


def recording_folder(folder: Path, *messages: dict[str, Any], scene: str = "text", form: int = 2) -> Path:
    """A folder with a recording of one scene."""
    folder.mkdir(parents=True, exist_ok=True)
    lines_ = [{"form": form, "scene": scene}, *rows(*messages)]
    (folder / f"{scene}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines_))
    return folder


def test_the_version_before(tmp_path: Path) -> None:
    for name in ("1.9.0", "1.10.0", "1.11.0"):
        recording_folder(tmp_path / name)
    assert version_before(tmp_path / "1.11.0") == tmp_path / "1.10.0"
    assert version_before(tmp_path / "1.9.0") == tmp_path / "1.10.0"
    for name in ("x-acp-1.0", "y-acp-1.1"):
        recording_folder(tmp_path / "acp" / name)
    assert version_before(tmp_path / "acp" / "y-acp-1.1") is None


def test_recordings_of_an_earlier_recorder_are_not_compared(tmp_path: Path) -> None:
    recording_folder(tmp_path / "1.9.0")
    recording_folder(tmp_path / "1.10.0", form=1)
    assert version_before(recording_folder(tmp_path / "1.11.0")) == tmp_path / "1.9.0"


def test_only_scenes_that_both_versions_have_are_compared(tmp_path: Path) -> None:
    before = recording_folder(tmp_path / "1.9.0", {"type": "a"})
    recording_folder(before, {"type": "gone"}, scene="old_scene")
    now = recording_folder(tmp_path / "1.10.0", {"type": "a"})
    recording_folder(now, {"type": "new"}, scene="new_scene")
    assert difference_of(before, now).empty
    recording_folder(now, {"type": "b"})
    assert difference_of(before, now).new_kinds == ("b",)


def test_answers_to_our_own_requests_are_no_new_kinds() -> None:
    asked = {"dir": "in", "msg": {"id": 1, "method": "thread/start"}}
    now = kinds_of([[asked, *rows({"id": 1, "result": {}}, {"type": "response", "command": "get_state"})]])
    assert compare({}, now).empty


# --- which agents, which scenes ------------------------------------------------------------------------------


def test_an_agent_that_cannot_be_recorded_says_why() -> None:
    with pytest.raises(ShimError, match="Amp's own server"):
        target("amp")
    with pytest.raises(ShimError, match="not known how"):
        target("nobody")
    assert TARGETS.keys() | CANNOT.keys() <= agents().keys()


def test_scenes_that_an_agent_has_nothing_for_are_skipped_with_the_reason() -> None:
    scenes, skipped = choose_scenes((), target("pi"))
    assert scenes.keys() | skipped.keys() == SCENES.keys()
    assert skipped["todo"] == "Pi has no tool for a list of tasks."
    with pytest.raises(ShimError, match="There is no scene nonsense"):
        choose_scenes(("nonsense",), target("pi"))


def test_the_version_of_an_npm_package(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "package.json").write_text('{"version": "1.2.3"}')
    assert packaged_version(tmp_path / "bin" / "agent") == "1.2.3"


async def test_scenes_are_recorded_again_beside_those_of_an_earlier_recorder(tmp_path: Path) -> None:
    spec = custom_spec("fake", (sys.executable, str(tmp_path / "agent.py")), None, {})
    (tmp_path / "agent.py").write_text(FAKE)
    earlier = recording_folder(tmp_path / "out" / "fake" / "1.0.0", form=1)
    before = (earlier / "text.jsonl").read_text()
    for _ in range(2):
        taken = await take(spec, tmp_path / "out", {}, names=("text",), version="1.0.0", to=foreign("agent", {}))
        assert (taken.folder.name, taken.scenes, taken.failed) == ("1.0.0-again", ["text"], {})
    assert (earlier / "text.jsonl").read_text() == before
    assert version_before(tmp_path / "out" / "fake" / "1.0.1") == taken.folder, "the next version is compared with them"


async def test_recording_ends_when_the_first_scenes_fail_alike(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho 'cannot start' >&2\nexit 1\n")
    program.chmod(0o755)
    spec = custom_spec("fake", (str(program),), None, {})
    said: list[str] = []
    taken = await take(spec, tmp_path / "out", {}, version="1.0.0", to=foreign("agent", {}), say=said.append)
    assert list(taken.failed) == ["text", "long"]
    assert said[-1] == f"The first 2 scenes failed alike; the other {len(SCENES) - 2} were not played."
    assert next(line for line in report_lines(taken) if "failed" in line).startswith("- text, long: **failed**. The agent ended")


LACKS = {"questions": "It asks nothing.", "mcp": "It has none."}


async def test_a_scene_that_the_agent_now_plays_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "agent.py"
    script.write_text(FAKE)
    scenes = {
        "text": Scene((Say("text"),)),
        "question": Scene((Say("text"),), needs="questions"),
        "easy": Scene((Say("text"),), needs="mcp"),
        "mcp": SCENES["mcp"],
    }
    monkeypatch.setattr("shim.dev.record.take.SCENES", scenes)
    spec = custom_spec("fake", (sys.executable, str(script)), None, {})
    to = replace(foreign("agent", {}), lacks=LACKS)
    taken = await take(spec, tmp_path / "out", {}, version="1.0.0", to=to)
    assert taken.possible == {"questions": ["question"]}
    assert taken.skipped == {"easy": "It has none.", "mcp": "It has none."}, "all scenes of a thing count"
    assert taken.failed == {}
    assert "- **now possible: questions** (question)" in report_lines(taken)
    assert sorted(path.name for path in taken.folder.iterdir()) == ["question.jsonl", "text.jsonl"]


# --- an agent of the person's own ---------------------------------------------------------------------------


def test_agent_of_a_command_is_recorded_and_packed_without_its_keys(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        FAKE.replace('"echo: " + text', '"echo: " + text + os.environ["MY_KEY"]').replace("import json", "import os, json")
    )
    command = f"{sys.executable} {script}"
    wish = Wish("mine", tmp_path / "out", ("text",), command=command, environment=("MY_KEY=k-123456", "MY_URL={url}/v2"))
    taken = record(wish, Settings())
    assert (taken.scenes, taken.version) == (["text"], "untold")
    path = pack(taken)
    assert path is not None
    with tarfile.open(path) as archive:
        [member] = archive.getmembers()
        content = archive.extractfile(member)
        assert content is not None
        text = content.read().decode()
    assert member.name == "mine/untold/text.jsonl"
    assert "k-123456" not in text
    assert "<secret>" in text
    head = json.loads(text.splitlines()[0])
    assert head["env"]["MY_URL"] == "http://127.0.0.1:8900/v2"


def test_agent_of_the_settings_is_recorded_with_its_environment(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(FAKE)
    agent = CustomAgent(command=(sys.executable, str(script)), env={"MY_TOKEN": SecretStr("t-123456")})
    taken = record(Wish("mine", tmp_path / "out", ("text",)), Settings(agents={"mine": agent}))
    assert taken.scenes == ["text"]
    assert json.loads((taken.folder / "text.jsonl").read_text().splitlines()[0])["env"]["MY_TOKEN"] == "<secret>"


def test_unknown_agent_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(ShimError, match=r'no agent nobody.*--command "program --acp"'):
        record(Wish("nobody", tmp_path), Settings())
    with pytest.raises(ShimError, match="--env X is not NAME=VALUE"):
        record(Wish("claude", tmp_path, environment=("X",)), Settings())


async def test_home_of_a_foreign_agent_gets_the_files_that_it_needs(tmp_path: Path) -> None:
    (tmp_path / "files" / ".agent").mkdir(parents=True)
    (tmp_path / "files" / ".agent" / "config.json").write_text('{"url": "{url}/v1"}')
    place = await Place.make(tmp_path)
    env = foreign("agent", {"A": "b"}, tmp_path / "files").prepare(place, "http://127.0.0.1:1")
    assert (place.home / ".agent" / "config.json").read_text() == '{"url": "http://127.0.0.1:1/v1"}'
    assert (env["OPENAI_BASE_URL"], env["ANTHROPIC_BASE_URL"], env["A"]) == ("http://127.0.0.1:1/v1", "http://127.0.0.1:1", "b")


# --- a scene ------------------------------------------------------------------------------------------------

FAKE = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    say = lambda **x: print(json.dumps({"jsonrpc": "2.0", **x}), flush=True)
    method = m.get("method")
    if method == "initialize":
        say(id=m["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        say(id=m["id"], result={"sessionId": "s1"})
    elif method == "session/prompt":
        text = m["params"]["prompt"][0]["text"]
        content = {"type": "text", "text": "echo: " + text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        say(method="session/update", params={"sessionId": "s1", "update": update})
        if "[scene:hang]" not in text:
            say(id=m["id"], result={"stopReason": "end_turn"})
        held = m["id"]
    elif method == "session/cancel":
        say(id=held, result={"stopReason": "cancelled"})
"""


async def play_scene(scene: Scene, tmp_path: Path) -> list[Part]:
    place = await Place.make(tmp_path)
    script = tmp_path / "agent.py"
    script.write_text(FAKE)
    spec = custom_spec("fake", (sys.executable, str(script)), None, {})
    driver = Driver(spec, sys.executable, "1.0.0", "test", scene, place)
    await driver.play({})
    return driver.parts


async def test_a_scene_is_written_down(tmp_path: Path) -> None:
    scene = Scene((Say("text", "hello"), Say("hang", until="delta"), Abort()))
    [part] = await play_scene(scene, tmp_path)
    head, *lines_ = [json.loads(line) for line in text_of(part).splitlines()]
    assert (head["form"], head["agent"], head["scene"], head["launch"]["resume"]) == (2, "fake", "test", False)
    done = [row["msg"]["command"] for row in lines_ if row["dir"] == "do"]
    assert done == ["prompt", "prompt", "abort"]
    written = [row["msg"].get("method") for row in lines_ if row["dir"] == "in"]
    assert written == ["initialize", "session/new", "session/prompt", "session/prompt", "session/cancel"]
    assert lines_[-1] == {"t": lines_[-1]["t"], "dir": "exit", "msg": {"code": 0}}


async def test_a_scene_fails_at_the_end_of_a_turn_that_never_asked(tmp_path: Path) -> None:
    with pytest.raises(SceneFailed, match="The turn ended without the first ask"):
        await play_scene(Scene((Say("text", until="ask"),)), tmp_path)


async def test_a_scene_that_does_not_show_its_thing_fails(tmp_path: Path) -> None:
    with pytest.raises(SceneFailed, match="showed no tool"):
        await play_scene(Scene((Say("text"),), shows=("tool",)), tmp_path)
