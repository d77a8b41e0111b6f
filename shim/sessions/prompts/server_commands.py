"""The slash commands `/init` and `/review`, which OpenCode's server has. They mean the same with every agent.

Source: `GET /command` of 1.18.33 for names and descriptions; the texts are ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from universal.slash_commands import ConfigCommand

INIT = "init"
REVIEW = "review"

INIT_PROMPT = """Look at this project and write a file AGENTS.md in {directory}, for coding agents that will work here. It says:

- what the project is, in a sentence or two, and how it is laid out where that is not plain from the names
- the commands to build it, to check it, to run all tests and to run a single one; only commands that you have found in the
  project's own files, not guesses
- conventions that the code keeps to: formatting, names, imports, types, errors, tests
- traps that somebody who is new here would run into

If there is an AGENTS.md already, improve it and keep what is right in it. If there are rules for other tools (CLAUDE.md,
.cursor/rules, .cursorrules, .github/copilot-instructions.md), take over what matters. Be concrete, and stay under 150 lines."""

INIT_TEMPLATE = f"{INIT_PROMPT}\n\nWhat the person wants besides, if anything: $ARGUMENTS"

REVIEW_TEMPLATE = """Review changes of the project in {directory}. Change no file.

What to review: $ARGUMENTS

- nothing is named: what is not committed (`git diff`, `git diff --cached`, and new files that `git status --short` lists)
- the hash of a commit: that commit (`git show`)
- the name of a branch: what this branch has that the other has not (`git diff NAME...HEAD`)
- a number or address of a pull request: that pull request (`gh pr view`, `gh pr diff`)

Read the changed files in whole, and what calls or is called by the changed code: a diff alone misleads. Look for, in this order:

1. faults: wrong conditions, missing cases, broken errors, races, leaks, holes that somebody could use
2. behaviour that changes without being meant to
3. things that do not fit how this project does them
4. tests that are missing for what changed

Before you report a fault, make sure of it, and say in which case it happens and how bad that is. Report only what the author
would want to mend. Give the file and line of each finding, the worst first. If nothing is wrong, say so in one sentence."""


def templates(directory: str, configured: Iterable[ConfigCommand]) -> tuple[ConfigCommand, ...]:
    """The templates of the server and of the configuration. The configuration replaces a server's template of the same name."""
    built_in = (
        ConfigCommand(INIT, INIT_TEMPLATE.replace("{directory}", directory), "guided AGENTS.md setup"),
        ConfigCommand(
            REVIEW,
            REVIEW_TEMPLATE.replace("{directory}", directory),
            "review changes [commit|branch|pr], defaults to uncommitted",
            subtask=True,
        ),
    )
    by_name: dict[str, ConfigCommand] = {command.name: command for command in (*built_in, *configured)}
    return tuple(by_name.values())
