"""Texts that an agent, a client or a repository chooses: what we look for in them takes time that grows with them, no faster.

One thread serves everybody: whoever finds a text that takes a minute stops all sessions. Each case took minutes once, or hours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from shim.faces.opencode2 import read, results
from shim.host.config import jsonc, markdown
from shim.host.config.opencode_config import PLACEHOLDER
from shim.lib.redaction import clean
from universal.agents.claude import notes
from universal.permissions import Rule, decide, matches
from universal.session.entries import PendingPrompt
from universal.session.values import File, ToolCall
from universal.shell import parse_shell_line
from universal.shell.finder import LENGTH_LIMIT

SIZE = 200_000
BOUND_S = 2.0
"""Of processor time; each takes some milliseconds."""

SUBAGENT_CALL = ToolCall("prt_1", "call_1", "task", output="<task_result>\n" * (SIZE // 14))

PROMPT = PendingPrompt("msg_1", "user", "queue", 0)

CASES: dict[str, Callable[[], object]] = {
    "a rule's stars": lambda: matches("*a*a*a*a*a*a*a*a*x", "a" * SIZE),
    "a rule's stars and marks": lambda: matches("*a?*a?*a?*b", "a" * SIZE),
    "blanks in a command": lambda: parse_shell_line("git" + " " * (LENGTH_LIMIT - 10) + "x"),
    "signs in a command": lambda: parse_shell_line("$(" * (LENGTH_LIMIT // 2)),
    "separators in a command": lambda: parse_shell_line(";&|" * (LENGTH_LIMIT // 3)),
    "commands in commands": lambda: parse_shell_line("$(" * (LENGTH_LIMIT // 3) + ")" * (LENGTH_LIMIT // 3)),
    "groups in a command": lambda: parse_shell_line("$(" + "(" * (LENGTH_LIMIT // 4) + ")" * (LENGTH_LIMIT // 4) + ")"),
    "a long command": lambda: parse_shell_line("a " * (LENGTH_LIMIT // 2)),
    "a command that is too long": lambda: parse_shell_line("a " * SIZE),
    "quotes in a command": lambda: parse_shell_line("echo " + "\"a\"'b' " * (LENGTH_LIMIT // 10)),
    "expansions in a command": lambda: parse_shell_line("echo " + "${x:-" * (LENGTH_LIMIT // 5)),
    "here-documents in a command": lambda: parse_shell_line("cat <<A\n" * (LENGTH_LIMIT // 8)),
    "a long here-document": lambda: parse_shell_line("cat <<A\n" + "$x `\n" * (LENGTH_LIMIT // 8) + "A"),
    "a list of commands": lambda: parse_shell_line("a && " * (LENGTH_LIMIT // 6) + "b"),
    "loops in a command": lambda: parse_shell_line("while x=$x; do " * 200 + "done;" * 200),
    "brackets in a command": lambda: parse_shell_line("a[" * (LENGTH_LIMIT // 2)),
    "quotes of pydantic on stderr": lambda: clean("input_value=" * (SIZE // 12)),
    "blanks behind a name on stderr": lambda: clean("token" + " " * SIZE),
    "a file without its comma": lambda: read.item(PROMPT, [File("prt_1", "text/plain", "data:" + "a" * SIZE)]),
    "results of subagents": lambda: results.content("subagent", SUBAGENT_CALL),
    "empty lines of a summary": lambda: notes._summary("\n" * SIZE + "x"),  # pyright: ignore[reportPrivateUsage] - pure
    "blanks in a file's head": lambda: markdown.parse("---\na: x" + " " * SIZE + "y\n---\n"),
    "placeholders of a configuration": lambda: PLACEHOLDER.sub("", "{env:" * (SIZE // 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_the_text(name: str) -> None:
    began = os.times().user
    CASES[name]()
    assert os.times().user - began < BOUND_S


def test_a_number_that_python_does_not_read_is_a_complaint() -> None:
    with pytest.raises(jsonc.JsoncError, match="expected a shorter number"):
        jsonc.loads('{"a": ' + "1" * 5000 + "}")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*", ""),
        ("**", "a"),
        ("a*", "a"),
        ("*a", "ba"),
        ("a*a", "a"),
        ("a*a", "aa"),
        ("a*b*a", "aba"),
        ("*ab*ab*", "abab"),
        ("*ab*ab*", "aab"),
        ("a?c", "abc"),
        ("a?c", "ac"),
        ("a?*?c", "ac"),
        ("?", "\n"),
        ("git *", "git"),
        ("git *", "git log"),
        ("git *", "gitx"),
        ("git * *", "git log"),
        (" *", ""),
        ("[a]*", "[a]b"),
        ("", ""),
        ("", "a"),
    ],
)
def test_stars_mean_what_they_did_as_one_expression(pattern: str, text: str) -> None:
    body = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    body = re.sub(r"\\ \.\*$", r"(\\ .*)?", body)
    assert matches(pattern, text) is (re.fullmatch(body, text, re.DOTALL) is not None)


@pytest.mark.parametrize(
    "line",
    [
        "git log & rm -rf ~",
        "git log $(rm -rf ~)",
        "git log `rm -rf ~`",
        "git log \\\n# it's\nrm -rf ~\n# it's",
        "git log !\\\n#;2>&1|rm -rf ~",
        'git log "$(rm -rf ~)"',
        "git diff <(rm -rf ~)",
        "git log # it's\nrm -rf ~",
        "git commit -F - <<A\n'\nA\nrm -rf ~\ngit commit -F - <<A\n'\nA",
        "git log $'\\''; rm -rf ~ #'",
        "git log" + " " * LENGTH_LIMIT + "; rm -rf ~",
    ],
)
def test_nothing_rides_along_with_a_command_that_is_allowed(line: str) -> None:
    rules = [Rule("bash", "git *", "allow")]
    found = parse_shell_line(line)
    assert not found.understood or decide("bash", found.commands, rules) != "allow"
    assert decide("bash", found.commands, [*rules, Rule("bash", "rm *", "deny")]) == "deny"
    assert decide("bash", parse_shell_line("git log -1 && git status").commands, rules) == "allow"
    assert not parse_shell_line("git log &>/dev/null rm -rf ~").understood  # `&>` of dash is `&` and `>`
