"""The mock agent and its codec, together: every scene, and every scene interrupted anywhere."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.processes.mock.agent import mock_program
from shim.processes.mock.run import pieces
from shim.processes.mock.scenes import MARKDOWN, SCENES, scene_for
from tests.fakes.mock_scenarios import SCENARIOS, play
from tests.fakes.mock_session import MockSession, accept, check_items, check_turns, reject
from universal.codec import Attachment, Signal
from universal.events import EventType
from universal.items import FileRefPart, ImagePart, ItemKind, ItemStatus, ReasoningPart
from universal.launch import Exit
from universal.turn import Input

RECORDINGS = Path(__file__).parents[4] / "compat_fixtures" / "agents" / "mock"


def lines_recorded(name: str) -> int:
    """How many lines the mock says in a scene, its greeting not counted."""
    rows = [orjson.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_bytes().split(b"\n") if line]
    return sum(row.get("dir") == "out" for row in rows) - 1


# --- all scenes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
async def test_each_scene_keeps_the_laws(name: str, tmp_path: Path) -> None:
    session = await play(SCENARIOS[name], tmp_path)
    assert tuple(session.ends) == SCENARIOS[name].ends
    check_turns(session)
    check_items(session)
    unparsed = [f for f in session.facts if f.type is EventType.UNPARSED]
    assert len(unparsed) == (2 if name == "unparsed" else 0)


@given(data=st.data())
def test_an_interrupt_anywhere_ends_the_turn_once(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SCENARIOS)))
    scenario = SCENARIOS[name]
    at = data.draw(st.integers(1, scenario.interrupt_at or lines_recorded(name)))

    async def run(directory: Path) -> None:
        for file, content in scenario.files.items():
            (directory / file).write_text(content)
        session = MockSession(directory, reply=scenario.reply, interrupt_at=at, mode=scenario.mode)
        session.start()
        try:
            session.prompt(scenario.prompts[0])
            await session.idle()
            assert session.ends[0] in ("aborted", scenario.ends[0])
            if session.exit is None:
                session.interrupt_at = None
                session.prompt("echo after")
                await session.until(lambda: "after" in session.text() and not session.machines[None].busy)
                assert session.ends[-1] == "completed"
            check_turns(session)
            check_items(session)
        finally:
            await session.stop()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


def test_help_lists_all_scenes(tmp_path: Path) -> None:
    said = asyncio.run(play(SCENARIOS["help"], tmp_path)).text()
    assert [name for name in SCENES if f"| `{name}" not in said] == []


@pytest.mark.parametrize(
    ("prompt", "scene"),
    [
        ("tool", "tool"),
        ("/tool", "tool"),
        ("  TOOL \n", "tool"),
        ("slow 5", "slow"),
        ("edit the file, please", "echo"),  # a sentence, not a scene: nothing is changed on disk
        ("question about cats", "echo"),
        ("echo a b c", "echo"),
        ("toolbox", "echo"),
        ("", "echo"),
    ],
)
def test_the_first_word_decides(prompt: str, scene: str) -> None:
    assert scene_for(prompt).scene is SCENES[scene]


@pytest.mark.parametrize(
    ("prompt", "scene", "args", "text"),
    [
        ('"slow 5"', "slow", ["5"], "slow 5"),
        ("Answer in English.\n\necho a b\n<context>none</context>", "echo", [], "echo a b"),
        ("permission\n\n[reply within 10 minutes]", "permission", [], "permission"),
        ("Hello! Please play /slow 2 now, and nothing else.", "slow", ["2"], "/slow 2 now, and nothing else."),
        ("see src/tool and a/slow", "echo", [], "see src/tool and a/slow"),
        ("two lines\nof text", "echo", [], "two lines\nof text"),
    ],
)
def test_a_scene_is_found_in_what_a_client_has_added(prompt: str, scene: str, args: list[str], text: str) -> None:
    cue = scene_for(prompt)
    assert (cue.scene, cue.args if scene != "echo" else [], cue.text) == (SCENES[scene], args, text)


@given(st.text())
def test_pieces_are_the_text(content: str) -> None:
    assert "".join(pieces(content)) == content


# --- single scenes -----------------------------------------------------------------------------------------


async def run(directory: Path, prompt: str, **how: object) -> MockSession:
    """One prompt, to the end of its turn."""
    session = MockSession(directory, **how)  # type: ignore[arg-type]  # the fields are checked by the dataclass
    session.start()
    session.prompt(prompt)
    await session.idle()
    await session.stop()
    return session


async def test_text_comes_in_several_deltas(tmp_path: Path) -> None:
    session = await run(tmp_path, "markdown")
    assert session.text() == MARKDOWN
    assert len(session.of(EventType.ITEM_DELTA)) > 20


async def test_reasoning_precedes_text_and_grows_with_the_variant(tmp_path: Path) -> None:
    lengths: dict[str | None, int] = {}
    for variant in ("low", None, "high"):
        session = MockSession(tmp_path)
        session.start()
        session.prompt("think", variant=variant)
        await session.idle()
        await session.stop()
        (message,) = session.items(ItemKind.MESSAGE)
        thought, _ = message.content
        assert isinstance(thought, ReasoningPart)
        assert message.metadata is not None and message.metadata["model"]["variant"] == variant
        lengths[variant] = len(thought.text)
    assert lengths["low"] < lengths[None] < lengths["high"]


async def test_usage_adds_up(tmp_path: Path) -> None:
    session = await run(tmp_path, "tool")
    steps = [m.metadata for m in session.items(ItemKind.MESSAGE)]
    (done,) = [o for o in session.outputs if isinstance(o, Signal) and o.input is Input.DONE]
    assert [s["finish"] for s in steps if s] == ["tool-calls", "stop"]
    assert done.metadata is not None
    assert done.metadata["usage"] == {key: sum(s["usage"][key] for s in steps if s) for key in done.metadata["usage"]}
    assert done.metadata["cost"] == pytest.approx(sum(s["cost"] for s in steps if s))


async def test_edit_changes_the_file_and_its_diff_applies(tmp_path: Path) -> None:
    work, copy = tmp_path / "work", tmp_path / "copy"
    for directory in (work, copy):
        directory.mkdir()
    for content in (None, "one\n", "no end of line", "one\r\ntwo\r\n", ""):
        for directory in (work, copy):
            (directory / "mock.txt").unlink(missing_ok=True)
            if content is not None:
                (directory / "mock.txt").write_bytes(content.encode())
        session = await run(work, "edit")
        (ref,) = [
            p for i in session.items(ItemKind.TOOL_RESULT) for p in i.content if isinstance(p, FileRefPart) and p.action != "read"
        ]
        assert ref.path == str(work / "mock.txt") and ref.diff is not None
        assert ref.action == ("write" if content is None else "patch")
        assert (work / "mock.txt").read_bytes() != (content or "").encode()
        subprocess.run(["git", "apply", "--unsafe-paths", "-"], cwd=copy, input=ref.diff.encode(), check=True)
        assert (copy / "mock.txt").read_bytes() == (work / "mock.txt").read_bytes()


async def test_edit_in_plan_mode_changes_nothing(tmp_path: Path) -> None:
    session = await run(tmp_path, "edit", mode="plan")
    assert session.ends == ["completed"]
    assert list(tmp_path.iterdir()) == []


async def test_a_permission_granted_for_good_is_not_asked_again(tmp_path: Path) -> None:
    session = await play(SCENARIOS["permission_always"], tmp_path)
    assert len(session.of(EventType.PERMISSION_REQUESTED)) == 1
    assert [d.status for d in session.of(EventType.PERMISSION_RESOLVED)] == ["accept_for_session"]
    assert len([o for o in session.outputs_of_tools() if "up-to-date" in o]) == 2


async def test_a_rejection_reaches_the_agent_with_its_message(tmp_path: Path) -> None:
    session = await run(tmp_path, "permission", reply=reject("use a branch"))
    assert session.ends == ["completed"]
    (result,) = session.items(ItemKind.TOOL_RESULT)
    assert result.status is ItemStatus.FAILED
    assert "use a branch" in session.outputs_of_tools()[0]
    assert "use a branch" in session.text()
    (resolved,) = session.of(EventType.PERMISSION_RESOLVED)
    assert resolved.status == "reject" and resolved.metadata["message"] == "use a branch"


async def test_answers_of_questions_come_back(tmp_path: Path) -> None:
    session = await run(tmp_path, "question")
    (result,) = session.items(ItemKind.TOOL_RESULT)
    assert result.metadata == {"answers": [["Red"], ["Tests", "Docs"]]}
    assert "Extras: Tests, Docs" in session.text()
    (resolved,) = session.of(EventType.QUESTION_RESOLVED)
    assert (resolved.status, resolved.response, resolved.answers) == ("answered", "Red", (("Red",), ("Tests", "Docs")))


@pytest.mark.parametrize(("reply", "modes"), [(accept, ["build"]), (reject(), [])])
async def test_an_accepted_plan_switches_the_mode(reply: object, modes: list[str], tmp_path: Path) -> None:
    session = await run(tmp_path, "plan", reply=reply, mode="plan")
    status = [i.metadata for i in session.items(ItemKind.STATUS)]
    assert [s["mode"] for s in status if s] == modes
    assert session.ends == ["completed"]


async def test_a_todo_list_gets_done(tmp_path: Path) -> None:
    session = await run(tmp_path, "todo")
    lists = [i.metadata["todos"] for i in session.items(ItemKind.STATUS) if i.metadata]
    assert [[t["status"] for t in todos].count("completed") for todos in lists] == [0, 1, 2, 3]


async def test_an_image_is_a_png(tmp_path: Path) -> None:
    session = await run(tmp_path, "image")
    (image,) = [p for i in session.items(ItemKind.TOOL_RESULT) for p in i.content if isinstance(p, ImagePart)]
    head, _, data = image.path.partition(",")
    assert head == "data:image/png;base64" and image.mime == "image/png"
    assert base64.b64decode(data, validate=True).startswith(b"\x89PNG\r\n\x1a\n")


async def test_a_subagent_has_a_session_of_its_own(tmp_path: Path) -> None:
    session = await run(tmp_path, "subagent")
    (child,) = [key for key in session.machines if key is not None]
    assert session.text(child) == "I look around.\nThere is a README."
    assert session.outputs_of_tools(child) == ["README.md\n"]
    (call, *_) = session.items(ItemKind.TOOL_CALL)
    assert call.native_item_id == child
    assert session.machines[child].turn == 1


async def test_a_background_task_holds_the_turn(tmp_path: Path) -> None:
    session = MockSession(tmp_path)
    session.start()
    session.prompt("background")
    await session.until(lambda: any(isinstance(o, Signal) and o.input is Input.DONE for o in session.outputs))
    assert session.machines[None].busy
    await session.idle()
    assert session.ends == ["completed"]
    assert session.text().endswith("there is a README.")
    await session.stop()


async def test_a_prompt_during_background_work_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    session = MockSession(tmp_path)
    session.start()
    session.prompt("background")
    await session.until(lambda: any(isinstance(o, Signal) and o.input is Input.DONE for o in session.outputs))
    session.prompt("echo meanwhile")
    await session.idle()
    assert session.ends == ["completed"]
    assert session.text().endswith("meanwhile")
    await session.stop()


async def test_an_abort_during_background_work_stops_it_and_the_waiting_prompt(tmp_path: Path) -> None:
    session = MockSession(tmp_path)
    session.start()
    session.prompt("background")
    await session.until(lambda: any(isinstance(o, Signal) and o.input is Input.DONE for o in session.outputs))
    session.prompt("echo unheard")
    session.apply(Input.ABORT)
    await session.idle()
    assert session.ends == ["aborted"]
    session.prompt("remember")
    await session.idle(2)
    assert "unheard" not in session.text()
    check_turns(session)
    check_items(session)
    await session.stop()


async def test_late_lines_belong_to_no_turn(tmp_path: Path) -> None:
    session = await play(SCENARIOS["late"], tmp_path)
    assert session.ends == ["completed"]
    assert session.codec.counters() == {"ignored:text": 1, "ignored:done": 1}


async def test_attachments_are_described(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("four")
    session = MockSession(tmp_path)
    session.start()
    attachments = [
        Attachment("image/png", filename="a.png", base64=base64.b64encode(b"12345").decode()),
        Attachment("text/plain", path=str(tmp_path / "b.txt"), text="größer"),
        Attachment("text/plain", path=str(tmp_path / "there.txt")),
        Attachment("text/plain", path=str(tmp_path / "gone.txt")),
    ]
    session.prompt("echo seen", attachments)
    await session.idle()
    await session.stop()
    (prompt,) = [m for m in session.native("in") if m["type"] == "prompt"]
    assert "base64" not in prompt["attachments"][0]
    assert session.text().splitlines()[2:6] == [
        "- a.png (image/png, 5 bytes)",
        "- b.txt (text/plain, 8 bytes)",
        "- there.txt (text/plain, 4 bytes)",
        "- gone.txt (text/plain, not readable)",
    ]
    assert session.text().endswith("seen")


async def test_the_mock_remembers_only_the_session_that_it_resumes(tmp_path: Path) -> None:
    program = mock_program(delay_factor=0)
    first = await run(tmp_path, "echo one", program=program)

    async def recall(native: str | None, using: object) -> str:
        session = MockSession(tmp_path, program=using)  # type: ignore[arg-type]  # a Program
        session.start(native)
        session.prompt("remember")
        await session.idle()
        await session.stop()
        return session.text()

    native = first.codec.native_session_id
    assert await recall(native, program) == "I remember 1 prompt before this one."
    assert await recall(native, program) == "I remember 2 prompts before this one."
    assert await recall(None, program) == "I remember 0 prompts before this one."
    assert await recall(native, mock_program(delay_factor=0)) == "I remember 0 prompts before this one."


async def test_carried_text_is_not_the_prompt(tmp_path: Path) -> None:
    earlier = "<earlier-in-this-conversation>\nUser:\nhello\n</earlier-in-this-conversation>\n\n"
    session = await run(tmp_path, earlier + "remember")
    assert session.text() == "I remember 0 prompts before this one. I was also told what others said: 13 characters."


async def test_a_crash_is_reported_by_its_exit(tmp_path: Path) -> None:
    session = await run(tmp_path, "crash")
    assert session.exit == Exit(code=None, signal=9)
    (result,) = session.items(ItemKind.TOOL_RESULT)
    assert result.status is ItemStatus.FAILED and (result.metadata or {})["interrupted"] is True


async def test_an_error_is_reported_before_the_turn_fails(tmp_path: Path) -> None:
    session = await run(tmp_path, "error")
    (error,) = session.of(EventType.ERROR)
    (failed,) = [o for o in session.outputs if isinstance(o, Signal)]
    assert error.details == {"status_code": 529, "is_retryable": True, "hint": "Try again."}
    assert failed.error is not None and failed.error["message"] == error.message and not failed.aborted


@pytest.mark.parametrize(("prompt", "deltas"), [("burst 300", 300), ("burst 999999999999", 20_000), ("slow 0", 0)])
async def test_numbers_are_bounded(prompt: str, deltas: int, tmp_path: Path) -> None:
    session = await run(tmp_path, prompt)
    assert len(session.of(EventType.ITEM_DELTA)) == deltas
