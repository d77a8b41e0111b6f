"""The cells of the matrix, as data: which recording shows a feature of an agent, or why there is nothing to show.

A cell with recordings is tried in each of them (`test_cells.py`), and has a tick if the feature's predicate holds in all.
An agent without an entry for a feature has not been seen with it: "not verified".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import NamedTuple

from shim.dev.record.scenes import SCENES
from shim.dev.record.take import is_own_folder, order
from tests.coverage.features import FEATURES
from tests.support.recordings import ROOT
from universal.agent_spec import AgentSpec
from universal.agents.acp.profiles import CARDS
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
        if why := self.lacks.get(feature) or self.lacks.get(SCENES[FEATURES[feature].scene.removesuffix(".2")].needs):
            return Cell(why=why)
        return Cell(tuple(f"{folder}/{FEATURES[feature].scene}" for folder in self.folders)) if self.folders else None


def _amp(scene: str, note: str = "") -> Cell:
    return Cell((f"amp/0.0.1774569934-g39e3ec/{scene}",), note=note)


def _opencode2(scene: str, note: str = "") -> Cell:
    """A cell of OpenCode 2: what its server of July said, by the names of the published contract."""
    return Cell((f"opencode2/published/{scene}",), note=note)


def _mock(scene: str, note: str = "") -> Cell:
    return Cell((f"mock/{scene}",), note=note)


def _in(scene: str, *folders: str, note: str = "") -> Cell:
    return Cell(tuple(f"{folder}/{scene}" for folder in folders), note=note)


def newest(beginning: str) -> str:
    """The newest recordings of an agent by `opencode-shim record`: a folder below compat_fixtures/agents, "" if it has none."""
    found = [path for path in ROOT.glob(f"{beginning}[0-9]*") if path.is_dir() and is_own_folder(path)]
    return max(found, key=order).relative_to(ROOT).as_posix() if found else ""


CLAUDE_ACP, CODEX_ACP, OPENCODE_ACP = map(newest, ("acp/claude-agent-acp-", "acp/codex-acp-", "acp/opencode-"))

_NO_WORDS: Mapping[str, Cell] = {
    "subagents": Cell(why="The protocol has no sessions of subagents: what they do is shown in the session that began them."),
    "retries": Cell(why="The protocol has no word for a retry: agents try again silently."),
    "plan": Cell(why="The protocol has no word for limits of a plan."),
}
"""What no agent of the protocol can tell."""
DIFFERS: Mapping[str, Callable[[str], Mapping[str, Cell]]] = {
    "copilot": lambda folder: {"retries": _in("drop", folder)},
    "vibe": lambda folder: {
        "retries": _in("drop", folder),
        "deltas": _in("length", folder, note="It sends pieces that come at once as one."),
    },
}
"""Cells in which an agent with a card differs, by the folder of its recordings. What it lacks stands on its card."""


def _of_cards() -> Iterator[tuple[str, Column]]:
    """A column for each card whose agent was recorded: its folder is all that it needs."""
    for name in CARDS:
        if folder := newest(f"acp/{name}-"):
            cells = {**_NO_WORDS, **DIFFERS.get(name, lambda _: {})(folder)}
            yield name, Column(agents()[name].title, (folder,), cells)


_COLUMNS: Mapping[str, Column] = {
    "claude": Column("Claude Code", (newest("claude/"),)),
    "codex": Column("Codex", (newest("codex/"),)),
    "opencode": Column("OpenCode", (newest("opencode/"),)),
    "pi": Column("Pi", (newest("pi/"),)),
    "acp": Column(
        "ACP",
        (CLAUDE_ACP, CODEX_ACP, OPENCODE_ACP),
        {
            "questions": _in("question", CLAUDE_ACP, CODEX_ACP, note="OpenCode's ACP server offers no question tool."),
            **_NO_WORDS,
            "steer": _in("steer", CLAUDE_ACP, CODEX_ACP, note="`opencode acp` takes one prompt at a time."),
            "cost": _in("text", CLAUDE_ACP, OPENCODE_ACP, note="codex-acp tells tokens, no prices."),
        },
    ),
    **dict(_of_cards()),
    "kilo-serve": Column(
        "Kilo (as OpenCode)",
        (newest("kilo-serve/"),),
        {"retries": _in("overload", newest("kilo-serve/"), note="A stream that breaks is an error at once.")},
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


# --- beside the turns -----------------------------------------------------------------------------------------------


class Power(NamedTuple):
    """What an agent can do that no scene shows. `tests`: agent -> the end-to-end test that runs it; `lacks`: agent -> why not."""

    title: str
    tests: Mapping[str, str]
    lacks: Mapping[str, str] = {}


def _runs(test: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, test)


def _wires(file: str, first: str, others: str) -> tuple[str, str, str]:
    return f"{file}::{first}", f"{file}::{others}", f"{file}::{others}"


_ANY_PROGRAM = ("claude", "codex", "opencode", "pi", "acp")
POWERS = (
    Power(
        "Sessions of its own program: opened, with history, continued",
        _runs("conversations::test_a_conversation_of_the_terminal_opens_with_its_history_and_goes_on", *_ANY_PROGRAM),
    ),
    Power(
        "Found by a search in the TUI",
        _runs("conversations::test_a_search_in_the_tui_finds_opens_and_continues_one", "claude", "codex"),
    ),
    Power(
        "A terminal goes on with it meanwhile: nothing is lost, and a sentence says so",
        {
            **_runs(
                "conversations::test_a_terminal_that_goes_on_meanwhile_is_shown_and_the_agent_gets_it", "claude", "pi", "acp"
            ),
            **_runs("conversations::test_a_conversation_that_a_terminal_has_open_is_left_to_it", "codex"),
            **_runs(
                "conversations::test_a_notice_tells_that_the_terminal_prompted_an_agent_with_a_database",
                "opencode",
            ),
        },
    ),
    Power(
        "A person's title reaches its own list",
        _runs("conversations::test_a_title_that_a_person_gives_follows", "claude", "codex", "opencode", "pi"),
        {"acp": "The protocol has no request for it."},
    ),
    Power(
        "A deleted session leaves its own list",
        _runs("conversations::test_a_session_that_is_deleted_leaves_the_agents_own_list", "codex", "opencode", "acp"),
        {"claude": "It has no request for it: the file stays.", "pi": "It has no request for it: the file stays."},
    ),
    Power(
        "Steering into a running tool",
        _runs("steering::test_steer_while_a_tool_runs", *_ANY_PROGRAM),
    ),
    Power(
        "Answers in a schema",
        _runs("structured::test_an_answer_has_a_value_of_the_schema", "claude", "codex", "pi"),
    ),
    Power(
        "A turn goes on when the limit resets",
        _runs("plan_limits::test_a_turn_goes_on_when_the_limit_resets", "claude", "codex"),
        {name: "It tells no limits of a plan." for name in ("opencode", "pi", "acp")},
    ),
    Power("A cap asks", _runs("cap::test_a_turn_that_takes_too_long_asks", "claude", "codex")),
    Power(
        "Log in from the client",
        {
            **_runs("logins::test_a_login_shows_its_link_until_it_is_cancelled", "claude", "acp"),
            **_runs("logins::test_a_login_by_a_device_code_is_completed_and_its_token_is_the_agents", "codex"),
        },
        {"pi": "It logs in only inside of its own screen.", "opencode": "Its login first asks for a provider in its own screen."},
    ),
)
"""The rows of the second table. A test is `FILE::NAME` in `tests/e2e/test_FILE.py`, and has the agent among its parameters."""


class Wires(NamedTuple):
    """A power by each wire: the test that runs it (`FILE::NAME` below `tests`), or why the wire has none ("" and a sentence)."""

    title: str
    opencode1: str
    opencode2: str
    v1: str


_TERMINAL = "http/test_other_writers::test_a_turn_of_another_program_is_shown_and_goes_along_with_the_next_prompt"
_NO_LOGIN = "/v1 has no logins: `credentialsAvailable` of `/v1/agents` says whether an agent has one."
WIRES = (
    Wires("Steering", *_wires("e2e/test_steering", "test_steer_while_a_tool_runs", "test_steer_by_the_other_wires")),
    Wires(
        "Sessions of agents' own programs",
        *_wires(
            "e2e/test_conversations",
            "test_a_conversation_of_the_terminal_opens_with_its_history_and_goes_on",
            "test_a_conversation_of_the_terminal_goes_on_by_the_other_wires",
        ),
    ),
    Wires(
        "A second writer",
        *[_TERMINAL] * 3,
    ),
    Wires(
        "Limits and `continue_at_reset`",
        *_wires("e2e/test_plan_limits", "test_a_turn_goes_on_when_the_limit_resets", "test_a_wait_by_the_other_wires"),
    ),
    Wires(
        "Answers in a schema",
        *_wires("e2e/test_structured", "test_an_answer_has_a_value_of_the_schema", "test_the_other_wires_have_the_value_too"),
    ),
    Wires("Log in", *["e2e/test_logins::test_a_login_shows_its_link_until_it_is_cancelled"] * 2, _NO_LOGIN),
    Wires("Notices", *[_TERMINAL] * 3),
    Wires(
        "Forms of MCP servers (elicitation)",
        *_wires(
            "e2e/test_setup",
            "test_a_question_of_an_mcp_server_reaches_the_person",
            "test_a_form_of_an_mcp_server_is_answered_by_the_other_wires",
        ),
    ),
    Wires("A cap asks", *_wires("e2e/test_cap", "test_a_turn_that_takes_too_long_asks", "test_the_other_wires_answer_a_cap")),
)
"""The rows of the third table. The links of a notification (`http/test_reply_links`) belong to no wire."""
ADAPTERS = ("claude-agent-acp", "codex-acp", "opencode-acp")
"""What stands for `acp` in the parameters of a test."""


def played_agents(test: str) -> set[str]:
    """The agents among the parameters of an end-to-end test. Raises AttributeError for a test that is not there."""
    file, _, name = test.partition("::")
    marks = getattr(import_module(f"tests.e2e.test_{file}"), name).pytestmark
    values = [value for mark in marks if mark.name == "parametrize" for value in mark.args[1]]
    names = {getattr(value, "values", (value,))[0] for value in values}
    return names | ({"acp"} if names.intersection(ADAPTERS) else set())
