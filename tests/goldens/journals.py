"""Journals that earlier versions wrote, and what a server answers that opens them.

`compat_fixtures/journals/COMMIT/AGENT/VERSION/SCENE.db.xz` is the SQLite file as the server of that commit left it,
`.jsonl.xz` beside it what that server answered after a restart. Ids stand as they are: clients know them.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import re
import tempfile
from pathlib import Path

from shim.lib.clock import ManualClock
from shim.store.base import Store
from shim.store.memory import MemoryStore
from shim.store.sqlite import SqliteStore
from tests.goldens.files import accepted_differences, compare
from tests.goldens.play import PLACE, START_MS, Golden, Scratch, play_live, repeatable, restart_answers, virtual_loop
from tests.goldens.timeline import Timeline, timeline
from universal.events import UniversalEvent

JOURNALS = Path(__file__).parents[2] / "compat_fixtures" / "journals"
MARK = re.compile(r"(?:msg|evt|sh)_[0-9a-f]{12}zzz[0-9A-Za-z]{11}")
CURSOR = re.compile(r'"cursor":\s*\{[^}]*\}')
DAY_MS = 24 * 3600 * 1000
"""The journal is opened a day after it was written."""
RECORDINGS = (
    "acp/claude-agent-acp-0.99.1/task",
    "amp/0.0.1774569934-g39e3ec/bash",
    "claude/2.1.330/bash_ask_deny",
    "claude/2.1.330/bg_task",
    "claude/2.1.330/question",
    "claude/2.1.330/task_edit",
    "codex/0.169.0/bash_ask_always",
    "codex/0.166.0/model_switch",
    "codex/0.169.0/todo",
    "mock/permission_interrupted",
    "opencode/1.18.33/task",
    "pi/0.87.1/interrupt_tool",
)


def journal_names() -> list[str]:
    """All journals, as COMMIT/AGENT/VERSION/SCENE."""
    return sorted(str(path.relative_to(JOURNALS))[: -len(".db.xz")] for path in JOURNALS.rglob("*.db.xz"))


def write(commit: str, name: str) -> None:
    """Play a recording, keep its journal, and what a server answers that opens it."""
    played = timeline(name)
    path = JOURNALS / commit / f"{name}.db.xz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="goldens-") as folder:
        scratch, memory = Scratch(Path(folder)), MemoryStore()
        scratch.make()
        with repeatable(), virtual_loop() as loop:
            play_live(loop, scratch, memory, played, ManualClock(START_MS, 0))
        database = scratch.root / "journal.db"
        asyncio.run(_copy(memory, SqliteStore(database), str(scratch.root), PLACE))
        path.write_bytes(lzma.compress(database.read_bytes(), preset=9))
    answers = lzma.compress("\n".join(answers_of(f"{commit}/{name}")).encode(), preset=9)
    (path.parent / f"{path.name[: -len('.db.xz')]}.jsonl.xz").write_bytes(answers)


def answers_of(name: str) -> list[str]:
    """What a server of today answers that opens a stored journal, as canonical JSON lines."""
    with tempfile.TemporaryDirectory(prefix="goldens-") as folder:
        scratch, memory = Scratch(Path(folder)), MemoryStore()
        scratch.make()
        database = scratch.root / "journal.db"
        database.write_bytes(lzma.decompress((JOURNALS / f"{name}.db.xz").read_bytes()))
        asyncio.run(_copy(SqliteStore(database), memory, PLACE, str(scratch.root)))
        golden = Golden(str(scratch.root), ids_stay=True)
        with repeatable(), virtual_loop() as loop:
            clock = ManualClock(START_MS + DAY_MS, 0)
            golden.answers |= restart_answers(loop, scratch, memory, Timeline(_agent(name)), clock)
        return golden.lines()


def differences(name: str) -> list[str]:
    """What is not as when the journal was written, less the differences that are wanted."""
    before = lzma.decompress((JOURNALS / f"{name}.jsonl.xz").read_bytes()).decode().split("\n")
    found = compare(name, by_order(before), by_order(answers_of(name)))
    listed = accepted_differences(JOURNALS / "differences.toml")
    return [str(difference) for difference in found if not any(entry.covers(difference) for entry in listed)]


def by_order(lines: list[str]) -> list[str]:
    """The lines with ids of marks numbered by order, and without cursors, which hold them.

    Versions before 2026-11-24 made these ids of a count of events that were sent, later ones of the place in the journal.
    """
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"mark{len(numbers)}")

    return [MARK.sub(number, CURSOR.sub('"cursor":0', line)) for line in lines]


def _agent(name: str) -> str:
    """The registry's name of the agent of a journal: the folder, without the version for ACP agents."""
    _, agent, version, *_ = name.split("/")
    return version.rpartition("-")[0] if agent == "acp" else agent


async def _copy(source: Store, target: Store, before: str, after: str) -> None:
    """All sessions and their events into another store, with another scratch folder in them."""
    await source.open()
    await target.open()
    try:
        for row in await source.sessions():
            data = json.loads(json.dumps(dict(row.data)).replace(before, after))
            target.save_session(row._replace(data=data, directory=row.directory.replace(before, after)))
            events = [event.model_dump_json(by_alias=True).replace(before, after) for event in await source.events(row.id)]
            target.append([UniversalEvent.model_validate_json(event) for event in events])
        await target.flush()
    finally:
        await source.close()
        await target.close()
