"""The cells of the matrix, as data: which recording shows a feature of an agent, or why there is nothing to show.

A cell with recordings is tried in each of them (`test_cells.py`), and has a tick if the feature's predicate holds in all.
An agent without an entry for a feature has not been seen with it: "not verified".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shim.record.take import is_own_folder, order
from tests.coverage.features import FEATURES
from tests.support.recordings import ROOT


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

    def cell(self, feature: str) -> Cell | None:
        """The cell; None: not verified."""
        if feature in self.differs:
            return self.differs[feature]
        return Cell(tuple(f"{folder}/{FEATURES[feature].scene}" for folder in self.folders)) if self.folders else None


def _amp(scene: str, note: str = "") -> Cell:
    return Cell((f"amp/0.0.1774569934-g39e3ec/{scene}",), note=note)


def _mock(scene: str, note: str = "") -> Cell:
    return Cell((f"mock/{scene}",), note=note)


def _acp(scene: str, *folders: str, note: str = "") -> Cell:
    return Cell(tuple(f"{folder}/{scene}" for folder in folders), note=note)


def newest(beginning: str) -> str:
    """The newest recordings of an agent by `opencode-shim record`: a folder below compat_fixtures/agents."""
    found = [path for path in ROOT.glob(f"{beginning}*") if path.is_dir() and is_own_folder(path)]
    return max(found, key=order).relative_to(ROOT).as_posix()


CLAUDE_ACP, CODEX_ACP, OPENCODE_ACP = map(newest, ("acp/claude-agent-acp-", "acp/codex-acp-", "acp/opencode-"))

COLUMNS: Mapping[str, Column] = {
    "claude": Column("Claude Code", (newest("claude/"),)),
    "codex": Column("Codex", (newest("codex/"),), {"cost": Cell(why="Codex tells tokens, no prices.")}),
    "opencode": Column("OpenCode", (newest("opencode/"),)),
    "pi": Column(
        "Pi",
        (newest("pi/"),),
        {
            "todos": Cell(why="Pi has no tool for a list of tasks."),
            "subagents": Cell(why="Pi has no subagents."),
        },
    ),
    "acp": Column(
        "ACP",
        (CLAUDE_ACP, CODEX_ACP, OPENCODE_ACP),
        {
            "questions": _acp("question", CLAUDE_ACP, CODEX_ACP, note="OpenCode's ACP server offers no question tool."),
            "subagents": Cell(
                why="The protocol has no sessions of subagents: what they do is shown in the session that began them."
            ),
            "retries": Cell(why="The protocol has no word for a retry: agents try again silently."),
            "cost": _acp("text", CLAUDE_ACP, OPENCODE_ACP, note="codex-acp tells tokens, no prices."),
        },
    ),
    "amp": Column(
        "Amp",
        (),
        {
            "text": _amp("text"),
            "deltas": Cell(why="Amp's stream has whole messages only; each text is told as one piece."),
            "reasoning": _amp("reason_thinking"),
            "tool_calls": _amp("read_edit"),
            "tool_results": _amp("read_edit"),
            "file_changes": _amp("read_edit"),
            "permissions": Cell(why="Its stream has no channel for approvals: a tool that is not allowed ends the run."),
            "questions": Cell(why="Its stream has no channel for questions."),
            "lifecycle": _amp("multi_turn"),
            "errors": _amp("error"),
            "interrupt": _amp("hang_sigint"),
            "resume": _amp("resume.2"),
            "model_switch": Cell(why="Amp chooses its models itself."),
            "usage": _amp("read_edit"),
            "cost": Cell(why="Amp tells credits on its server, not in its stream."),
        },
    ),
    "mock": Column(
        "Mock",
        (),
        {
            "mcp": Cell(why="It has no MCP client."),
            "images": Cell(why="It names what is attached, and reads nothing."),
            "files": Cell(why="It names what is attached, and reads nothing."),
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
"""The columns, in the order of the table."""
