"""Writes docs/turn.md from the turn machine: `python -m tools.turn_doc`. `--check` compares (exit 1 if it is not current).

The table comes from `TRANSITIONS`. The diagram and the outcomes come from a walk of the machine through every state that it can
reach with at most WAITING prompts in the queue, so they show what the code does.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from dataclasses import replace
from typing import TypeAlias, get_args

from tools.generated_files import ROOT, settle
from universal.turn import (
    TRANSITIONS,
    DispatchPrompt,
    Effect,
    Input,
    PromptsCancelled,
    State,
    Step,
    TurnEnd,
    TurnMachine,
    TurnStart,
)

TARGET = ROOT / "docs" / "turn.md"
QUEUE_LIMIT = 2

STEPS: dict[Step, str] = {
    "wake": "a turn begins that nobody asked for",
    "work": "the agent has something to answer",
    "queue": "the prompt waits",
    "answer": "the agent has nothing to answer any more",
    "fail": "as answer; the turn's reason is error, unless it has one already",
    "hold": "the key is open",
    "release": "the key is no longer open",
    "offer": "the agent has the prompt, and may take it in",
    "take": "it has taken it in, and answers it with what it does (*draining* becomes *running*)",
    "return": "it has given it back, so that it waits again; in an abort it is cancelled",
    "withdraw": "it has given it back, and nobody wants it",
    "interrupt": "what is queued is cancelled, the agent is asked to stop",
    "cancel": "what is queued is cancelled",
    "stopped": "the agent has stopped",
    "kill": "the process is ended, which counts as stopped",
    "lost": "nothing is open any more; the reason is agent_exited, unless it has one already",
    "close": "what is queued is cancelled, the process is ended",
    "restore": "a turn of a journal that is read, or copied, counts",
    "replayed": "the journal says that it ended",
    "recover": "it was lost with the server: it ends as agent_exited",
    "drop": "a copy leaves it out: it ends as aborted",
}

HEAD = """# How does a turn begin and end?

GENERATED from `universal/turn.py` by `python -m tools.turn_doc`; do not edit.

A turn is one stretch of being busy. It begins when a prompt is accepted, or when the agent wakes up by itself, and it
ends exactly once. The machine is pure: inputs go in, effects come out, and the session acts on them in order.

- **idle**: no turn.
- **running**: the agent works on a prompt, or on something of its own.
- **draining**: it has answered, but something that it started is still open (a background task).
- **aborting**: we have asked it to stop.
- **restored**: a journal says that a turn began, and nobody works on it.
- **closed**: the session is deleted.
"""

CONDITIONS = """After the step, these run until none applies. Only they hand a prompt over; only they and a deletion end a turn:

1. *aborting*, and it has stopped, or neither works nor holds anything open: `Ended(aborted)`, idle
2. *draining*, no offer is open and a prompt waits: `DispatchPrompt`, running
3. *draining*, and neither an offer nor anything else is open: `Ended`, idle
4. *idle*, and a prompt waits: `Started`, `DispatchPrompt`, running
"""

Outcome: TypeAlias = tuple[State, tuple[str, ...]]


def outcomes() -> dict[tuple[State, Input], set[Outcome]]:
    """For each state and input that has an effect: the states in which the machine may come to rest, with the effects."""
    table: dict[tuple[State, Input], set[Outcome]] = defaultdict(set)
    todo, outlines = deque([TurnMachine()]), set[str]()
    while todo:
        machine = todo.popleft()
        for input_ in Input:
            if input_ is Input.PROMPT and len(machine.queue) + len(machine.offers) == QUEUE_LIMIT:
                continue
            lists = {"queue": list(machine.queue), "offers": list(machine.offers), "open": set(machine.open)}
            after = replace(machine, **lists, ignored=machine.ignored.copy())
            effects = after.apply(input_, "key")
            if not after.ignored - machine.ignored:
                table[machine.state, input_].add((after.state, tuple(_name(effect) for effect in effects)))
            outline = repr(replace(after, turn=0, ignored=type(after.ignored)()))
            if outline not in outlines:
                outlines.add(outline)
                todo.append(after)
    return table


def _name(effect: Effect) -> str:
    match effect:
        case TurnStart(origin="agent"):
            return "Started(agent)"
        case TurnEnd(reason=reason):
            return f"Ended({reason})"
        case TurnStart() | DispatchPrompt() | PromptsCancelled() | _:
            return type(effect).__name__


def render() -> str:
    """The text of docs/turn.md."""
    return "\n".join([HEAD, *_diagram(), *_table(), CONDITIONS, *_steps(), *_outcome_list()])


def _diagram() -> list[str]:
    """The Mermaid diagram. Inputs that do not change the state are left to the list of outcomes."""
    edges: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, input_), after in outcomes().items():
        for next_ in sorted({next_ for next_, _ in after} - {state}):
            edges[state, next_].append(input_.name)
    lines = [f"    {a.value} --> {b.value}: {', '.join(sorted(names))}" for (a, b), names in sorted(edges.items())]
    return ["```mermaid", "stateDiagram-v2", "    [*] --> idle", *lines, "    closed --> [*]", "```", ""]


def _table() -> list[str]:
    """`TRANSITIONS` as a matrix."""
    states = [state for state in State if state is not State.CLOSED]
    lines = [
        "## The table",
        "",
        "A cell is the step, and the state before the conditions below are looked at. An empty one is ignored and counted;",
        "in *closed* everything is.",
        "",
        f"| input | {' | '.join(states)} |",
        f"|---|{'---|' * len(states)}",
    ]
    for input_ in Input:
        rows = [TRANSITIONS.get((state, input_)) for state in states]
        cells = [
            f"{row[1]}{'' if row[0] is state else f', {row[0].value}'}" if row else ""
            for row, state in zip(rows, states, strict=True)
        ]
        lines.append(f"| {input_.name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _steps() -> list[str]:
    return ["## Steps", "", *(f"- **{step}**: {STEPS[step]}" for step in get_args(Step)), ""]


def _outcome_list() -> list[str]:
    """A table of the outcomes of each input."""
    lines = ["## What may come of it", "", "| in | input | effects, state |", "|---|---|---|"]
    for (state, input_), after in sorted(
        outcomes().items(), key=lambda row: (list(State).index(row[0][0]), list(Input).index(row[0][1]))
    ):
        cells = sorted(f"{', '.join((*effects, next_.value))}" for next_, effects in after)
        lines.append(f"| {state.value} | {input_.name} | {'<br>'.join(cells)} |")
    return [*lines, ""]


def main(argv: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle({TARGET: render()}, check="--check" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
