"""The cells of the matrix, as data: which recording shows a feature of an agent, or why there is nothing to show.

A cell with recordings is tried in each of them (`test_cells.py`), and has a tick if the feature's predicate holds in all.
An agent without an entry for a feature has not been seen with it: "not verified".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from shim.dev.record.take import is_own_folder, order
from tests.coverage.features import FEATURES
from tests.support.recordings import ROOT
from universal.agent_spec import AgentSpec
from universal.registry import agents


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. `recordings` that show it, or `why` there is none; `note` on what a tick leaves out."""

    recordings: tuple[str, ...] = ()
    why: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """An agent. `folders` of `opencode-shim record` recordings, each of which must show what `differs` does not name."""

    title: str
    folders: tuple[str, ...] = ()
    differs: Mapping[str, Cell] = field(default_factory=dict[str, Cell])
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """As `AgentAbilities.all_lacks`."""

    def cell(self, feature: str) -> Cell | None:
        """The cell; None: not verified."""
        if feature in self.differs:
            return self.differs[feature]
        if feature in self.lacks:
            return Cell(why=self.lacks[feature])
        return Cell(tuple(f"{folder}/{FEATURES[feature].scene}" for folder in self.folders)) if self.folders else None


def _amp(scene: str, note: str = "") -> Cell:
    return Cell((f"amp/0.0.1774569934-g39e3ec/{scene}",), note=note)


def _kilo(scene: str) -> Cell:
    """A cell of Kilo, of which eight scenes were recorded."""
    return Cell((f"acp/kilo-7.7.9/{scene}",))


def _opencode2(scene: str, note: str = "") -> Cell:
    """A cell of OpenCode 2: what its server of July said, by the names of the published contract."""
    return Cell((f"opencode2/published/{scene}",), note=note)


def _mock(scene: str, note: str = "") -> Cell:
    return Cell((f"mock/{scene}",), note=note)


def _acp(scene: str, *folders: str, note: str = "") -> Cell:
    return Cell(tuple(f"{folder}/{scene}" for folder in folders), note=note)


def newest(beginning: str) -> str:
    """The newest recordings of an agent by `opencode-shim record`: a folder below compat_fixtures/agents."""
    found = [path for path in ROOT.glob(f"{beginning}*") if path.is_dir() and is_own_folder(path)]
    return max(found, key=order).relative_to(ROOT).as_posix()


CLAUDE_ACP, CODEX_ACP, OPENCODE_ACP = map(newest, ("acp/claude-agent-acp-", "acp/codex-acp-", "acp/opencode-"))

_NO_WORDS: Mapping[str, Cell] = {
    "subagents": Cell(why="The protocol has no sessions of subagents: what they do is shown in the session that began them."),
    "retries": Cell(why="The protocol has no word for a retry: agents try again silently."),
    "plan": Cell(why="The protocol has no word for limits of a plan."),
}
"""What no agent of the protocol can tell."""
SHOWN: Mapping[str, Callable[[str], Mapping[str, Cell]]] = {
    "gemini": lambda _: _NO_WORDS,
    "kimi": lambda _: _NO_WORDS,
    "fast-agent": lambda _: _NO_WORDS,
    "vibe": lambda folder: {
        **_NO_WORDS,
        "retries": _acp("drop", folder, note="It does not count them."),
        "deltas": _acp("length", folder, note="It sends pieces that come at once as one."),
    },
}
"""Agents with a card that have a column of their own, and the cells in which they differ, by the folder of their recordings."""
_KILO_SERVE = (
    *("text", "deltas", "reasoning", "tool_calls", "tool_results", "commands", "stderr", "file_changes", "permissions", "todos"),
    *("images", "lifecycle", "errors", "interrupt", "queue", "resume", "model_switch", "variants", "usage"),
)
"""Features whose scenes of Kilo as OpenCode were recorded. The others need a quieter machine."""
_COLUMNS: Mapping[str, Column] = {
    "claude": Column("Claude Code", (newest("claude/"),)),
    "codex": Column("Codex", (newest("codex/"),)),
    "opencode": Column("OpenCode", (newest("opencode/"),)),
    "pi": Column("Pi", (newest("pi/"),)),
    "acp": Column(
        "ACP",
        (CLAUDE_ACP, CODEX_ACP, OPENCODE_ACP),
        {
            "questions": _acp("question", CLAUDE_ACP, CODEX_ACP, note="OpenCode's ACP server offers no question tool."),
            **_NO_WORDS,
            "steer": _acp("steer", CLAUDE_ACP, CODEX_ACP, note="`opencode acp` takes one prompt at a time."),
            "cost": _acp("text", CLAUDE_ACP, OPENCODE_ACP, note="codex-acp tells tokens, no prices."),
        },
    ),
    **{
        name: Column(agents()[name].title, (folder,), differs(folder))
        for name, differs in SHOWN.items()
        if agents()[name].program.tested and (folder := newest(f"acp/{name}-"))
    },
    "kilo-serve": Column(
        "Kilo (as OpenCode)",
        (),
        {
            feature: Cell((f"kilo-serve/7.7.9/{scene or FEATURES[feature].scene}",))
            for feature, scene in {**dict.fromkeys(_KILO_SERVE, ""), "subagents": "checked"}.items()
        },
    ),
    "kilo": Column(
        "Kilo",
        (),
        {
            "text": _kilo("text"),
            "tool_calls": _kilo("read_edit"),
            "tool_results": _kilo("read_edit"),
            "file_changes": _kilo("read_edit"),
            "permissions": _kilo("bash_once"),
            "todos": _kilo("todo"),
            "errors": _kilo("error"),
            "interrupt": _kilo("abort_tool"),
            "lifecycle": _kilo("three_turns"),
            "usage": _kilo("text"),
            **_NO_WORDS,
        },
    ),
    "amp": Column(
        "Amp",
        (),
        {
            "text": _amp("text"),
            "reasoning": _amp("reason_thinking"),
            "tool_calls": _amp("read_edit"),
            "tool_results": _amp("read_edit"),
            "file_changes": _amp("read_edit"),
            "lifecycle": _amp("multi_turn"),
            "errors": _amp("error"),
            "interrupt": _amp("hang_sigint"),
            "resume": _amp("resume.2"),
            "usage": _amp("read_edit"),
        },
    ),
    "opencode2": Column(
        "OpenCode 2 (not run)",
        (),
        {
            "text": _opencode2("text"),
            "deltas": _opencode2("text"),
            "reasoning": _opencode2("reason"),
            "tool_calls": _opencode2("read_edit"),
            "tool_results": _opencode2("read_edit"),
            "file_changes": _opencode2("read_edit"),
            "permissions": _opencode2("permission_once"),
            "questions": _opencode2("question"),
            "subagents": _opencode2("task"),
            "errors": _opencode2("error"),
            "interrupt": _opencode2("hang_interrupt"),
            "lifecycle": _opencode2("three_turns"),
            "usage": _opencode2("text"),
        },
    ),
    "mock": Column(
        "Mock",
        (),
        {
            "text": _mock("echo"),
            "deltas": _mock("markdown"),
            "reasoning": _mock("think"),
            "tool_calls": _mock("tool"),
            "tool_results": _mock("tool"),
            "file_changes": _mock("edit"),
            "permissions": _mock("permission"),
            "questions": _mock("question"),
            "todos": _mock("todo"),
            "subagents": _mock("subagent"),
            "errors": _mock("error"),
            "retries": _mock("retry"),
            "interrupt": _mock("hang"),
            "usage": _mock("echo"),
            "cost": _mock("echo"),
            "lifecycle": _mock("echo"),
        },
    ),
}


def columns(specs: Mapping[str, AgentSpec]) -> dict[str, Column]:
    """The columns, in the order of the table. Agents of packages, which have no recordings here, come last."""
    shown = {
        name: replace(column, lacks=specs[name].abilities.all_lacks) if name in specs else column
        for name, column in _COLUMNS.items()
    }
    others = {name: Column(spec.title, lacks=spec.abilities.all_lacks) for name, spec in specs.items() if name not in agents()}
    return {**shown, **others}


COLUMNS = columns(agents())
"""Those of the agents of this repository."""
