"""Converts OpenCode's permission rules to settings of Amp: entries of `amp.permissions`, and disabled tools. Pure.

Amp uses the first entry that matches. Our entries come before the person's and only refuse, because an allowing entry would undo
theirs. Amp cannot ask a person here, so calls that a rule asks about are refused too.

    whole keys   the tool is refused, and switched off (`amp.tools.disable`), which a project's settings cannot undo
    patterns     regular expressions, since `*` of Amp stops at the end of a line; a command or path that is not plain is refused

A pattern may refuse more than OpenCode does, never less: `tests/unit/agents/amp/test_rules.py` compares the two.
Source: the matcher of 0.0.1774569934; runs of `amp permissions test` of that version and of 0.0.1790142911.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from universal.lib.jsonvalue import arr
from universal.permissions import BYPASS, Rule, matches
from universal.shell import git
from universal.shell.tables import BUILT_INS, RESERVED, RUNNERS, RUNNING_OPTIONS, SHELLS, WRAPPERS, ProgramOptions

PERMISSIONS, DISABLED, ALLOW_ALL = "amp.permissions", "amp.tools.disable", "amp.dangerouslyAllowAll"

TOOLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "edit": (
        *(
            ("edit_file", "path"),
            ("create_file", "path"),
            ("delete_file", "path"),
            ("format_file", "path"),
            ("undo_edit", "path"),
        ),
        *(("apply_patch", ""), ("restore_snapshot", "")),
    ),
    "bash": (("Bash", "cmd"), ("shell_command", "command"), ("async_shell_command", "command")),
    "read": (("Read", "path"), ("look_at", "path")),
    "webfetch": (("read_web_page", "url"),),
    "websearch": (("web_search", "objective"),),
    "task": (("Task", ""), ("oracle", ""), ("librarian", ""), ("finder", ""), ("code_review", "")),
    "skill": (("skill", "name"),),
    "todowrite": (("todo_write", ""), ("task_list", "")),
    "glob": (("glob", "filePattern"), ("Glob", "filePattern")),
    "grep": (("Grep", "pattern"),),
}
"""OpenCode's permission -> Amp's tools and the argument that patterns are about; "" if a pattern cannot be compared."""
OTHER_TOOLS = (
    *(
        "get_diagnostics",
        "mermaid",
        "chart",
        "walkthrough",
        "walkthrough_diagram",
        "search_documents",
        "get_document",
        "docs_list",
    ),
    *("docs_read", "docs_write", "code_tour", "read_thread", "find_thread", "read_github", "search_github", "commit_search"),
    *("list_directory_github", "list_repositories", "glob_github", "diff", "handoff", "painter", "render_agg_man"),
    *("thread_status", "create_project", "create_thread", "archive_thread", "unarchive_thread", "send_message_to_thread"),
    *("send_message_to_aggman", "slack_write", "slack_read", "github_repo_ci_status", "load_plugin", "reload_plugins", "tb__*"),
    *(f"{name}_bitbucket_enterprise" for name in ("read", "list_directory", "list_repositories", "glob", "search", "diff")),
    *("commit_search_bitbucket_enterprise", "read_mcp_resource", "mcp__*"),
)
"""Tools without a permission of OpenCode. Only a rule for `*` concerns them."""
_OWN_SETTINGS = r"/(?:^|[\s\/])\.[aA][mM][pP](?:[\s\/]|$)/"
"""A path in `.amp`: the settings there could allow what a pattern refuses."""
PATHS = (*TOOLS["read"], *TOOLS["edit"][:5], ("Grep", "path"), ("list_directory", "path"))
"""Tools with a path argument."""

# A JavaScript expression for the whole text: `^`, `$` and `.` would stop at lines, since Amp sets the flag `m`.
_START, _END, _ANY = r"(?<![\s\S])", r"(?![\s\S])", r"[\s\S]*"
_NAME, _WORD = r"[A-Za-z0-9_./][A-Za-z0-9_./-]*", r"[A-Za-z0-9_./:,@+-][A-Za-z0-9_./:,@+=-]*"
_NOT_LITERAL = (WRAPPERS | SHELLS | RUNNERS | RESERVED | BUILT_INS) - {
    "echo",
    "pwd",
    "true",
    "false",
    ":",
    "kill",
    "type",
    "which",
}
"""Commands that may run others, or change the meaning of later ones. A pattern for `bash` refuses them."""
_DOTS = r"(?:(?:^|\/)\.{1,2}(?:\/|$)|\/\/|\/$|\\)"
_STARS = 4
"""Maximum stars in a pattern, because more could keep Amp busy. Beyond it, a refusal matches more and an `allow` nothing."""


def settings_with_rules(settings: Mapping[str, Any], rules: Sequence[Rule], mode: str, directory: str) -> dict[str, Any]:
    """The person's settings of Amp, with our entries first. In `bypass` the person's entries do not apply, as in Amp."""
    entries = entries_of(rules, directory)
    allows_all = mode == BYPASS or settings.get(ALLOW_ALL) is True
    rest: list[Any] = [{"tool": "*", "action": "allow"}] if allows_all else arr(settings.get(PERMISSIONS))
    disabled = [*arr(settings.get(DISABLED)), *disabled_tools(rules)]
    return {**settings, PERMISSIONS: [*entries, *rest], ALLOW_ALL: False, DISABLED: list(dict.fromkeys(disabled))}


def personal_settings_files(environment: Mapping[str, str], directory: str) -> tuple[str, ...]:
    """Paths of the person's settings, in Amp's order."""
    if file := environment.get("AMP_SETTINGS_FILE"):
        return (posixpath.join(directory, file),)
    folder = environment.get("XDG_CONFIG_HOME") or posixpath.join(environment.get("HOME", "/"), ".config")
    return tuple(posixpath.join(directory, folder, "amp", name) for name in ("settings.json", "settings.jsonc"))


def restricts(rules: Iterable[Rule]) -> bool:
    """Whether a rule denies or asks, so that Amp needs our settings."""
    return any(rule.action != "allow" for rule in rules)


def disabled_tools(rules: Sequence[Rule]) -> list[str]:
    """Tools of which every call is refused."""
    return [tool for key, tools in TOOLS.items() if _is_whole(_about(rules, key)) for tool, _ in tools]


def entries_of(rules: Sequence[Rule], directory: str) -> list[dict[str, Any]]:
    """Entries of `amp.permissions` that refuse what these rules deny or ask about."""
    if not restricts(rules):
        return []
    refusals = [_refuse(tool, "edit", {argument or "patchText": _OWN_SETTINGS}) for tool, argument in TOOLS["edit"][:-1]]
    for key, tools in TOOLS.items():
        about = _about(rules, key)
        if not restricts(about):
            continue
        whole = _is_whole(about)
        for tool, argument in tools:
            regex = None if whole or not argument else _refused_pattern(key, about, directory)
            refusals.append(_refuse(tool, key, {argument: f"/{regex}/"} if regex else {}))
    outside = _about(rules, "external_directory")
    if restricts(outside):
        refusals += [_refuse(tool, "external_directory", {arg: f"/{_outside(outside, directory)}/"}) for tool, arg in PATHS]
        refusals += [_refuse(tool, "external_directory", {arg: f"/{_LEAVES}/"}) for tool, arg in TOOLS["bash"]]
    return [*refusals, *_of_other_tools(rules)]


def _about(rules: Sequence[Rule], key: str) -> list[Rule]:
    """The rules of a key that still count: those from the last rule that allows every call.

    For `bash` all rules count, because a line that is not understood is refused if any rule could refuse it.
    """
    active_rules: list[Rule] = []
    for rule in rules:
        if matches(rule.permission, key):
            is_end = rule.action == "allow" and _is_everything(rule) and key != "bash"
            active_rules = [] if is_end else [*active_rules, rule]
    return active_rules


def _is_everything(rule: Rule) -> bool:
    return not rule.pattern.strip("*") and rule.pattern != ""


def _is_whole(rules: Sequence[Rule]) -> bool:
    """Whether the last rules refuse every call."""
    whole = False
    for rule in rules:
        whole = rule.action != "allow" and (whole or _is_everything(rule))
    return whole


def _refuse(tool: str, key: str, conditions: Mapping[str, str]) -> dict[str, Any]:
    words = f"A permission rule for `{key}` refuses this call."
    if key == "bash" and conditions:
        words += " Only one command of plain words can be checked: no quotes, variables, pipes or lists, no `cd`, `env` or `sh`."
    entry: dict[str, Any] = {"tool": tool, "action": "reject", "message": words}
    return {**entry, "matches": dict(conditions)} if conditions else entry


def _of_other_tools(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """Entries for MCP tools (`SERVER_TOOL` in rules) and tools that only `*` concerns. A later `allow` does not count."""
    refusals: list[dict[str, Any]] = []
    for rule in rules:
        if rule.action == "allow" or rule.permission in (*TOOLS, "external_directory", "doom_loop"):
            continue
        if not rule.permission.strip("*"):
            refusals += [_refuse(tool, rule.permission, {}) for tool in OTHER_TOOLS]
            continue
        name = re.sub(r"[^A-Za-z0-9]+", "*", rule.permission)
        tools = (rule.permission if "_" not in rule.permission else name, f"mcp__*{name}", "read_mcp_resource")
        refusals += [_refuse(tool, rule.permission, {}) for tool in dict.fromkeys(tools)]
    return refusals


# --- patterns -------------------------------------------------------------------------------------------


def _refused_pattern(key: str, rules: Sequence[Rule], directory: str) -> str:
    """An expression that matches what these rules of one key refuse."""
    if key == "bash":
        return f"{_not_plain()}|{_START}(?:{_alternatives(rules)})"
    if key not in ("edit", "read"):
        return f"{_START}(?:{_alternatives(rules)})"
    inside = f"(?:{_literal(directory.rstrip('/') + '/')}|(?!\\/))"
    return f"{_elsewhere(directory)}|{_DOTS}|{_START}{inside}(?:{_alternatives(rules)})"


def _alternatives(rules: Sequence[Rule]) -> str:
    """A refusing rule, except where a later one allows."""
    patterns: list[str] = []
    for number, rule in enumerate(rules):
        if rule.action != "allow":
            patterns.append(_but_for(rules[number + 1 :]) + _expression(rule.pattern))
    return "|".join(patterns)


def _but_for(rules: Iterable[Rule]) -> str:
    allowed = [rule.pattern for rule in rules if rule.action == "allow"]
    return "".join(f"(?!{_expression(pattern, exact=True)})" for pattern in allowed if pattern.count("*") <= _STARS)


def _expression(pattern: str, *, exact: bool = False) -> str:
    """A pattern as an expression, up to the end of the text. `exact`: it matches nothing else than the pattern.

    JavaScript counts some characters as two, which a `?` would not match.
    """
    head, bare, _ = pattern.rpartition(" *")
    if bare and pattern.endswith(" *"):
        return f"{_body(head, exact=exact)}(?: {_ANY})?{_END}"
    return f"{_body(pattern, exact=exact)}{_END}"


def _body(pattern: str, *, exact: bool) -> str:
    pieces = re.sub(r"\*+", "*", pattern).split("*")
    if not exact and len(pieces) > _STARS:
        pieces = [*pieces[:_STARS], ""]
    character = r"[^\ud800-\udfff]" if exact else r"[\s\S]{1,2}"
    return _ANY.join(character.join(map(_literal, piece.split("?"))) for piece in pieces)


def _literal(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [units[place] << 8 | units[place + 1] for place in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 and (chr(code).isalnum() or code == 32) else f"\\u{code:04x}" for code in codes)


def _not_plain() -> str:
    """Matches command lines with more than one command of plain words, or with options that run others."""
    commands = "|".join(sorted(map(_literal, _NOT_LITERAL)))
    running = "|".join(
        f"{name}(?: {_WORD})* (?:{_options_pattern(options)})(?: |{_END})" for name, options in RUNNING_OPTIONS.items()
    )
    folder = r"(?:[A-Za-z0-9_./-]*\/)?"
    words = f"(?!{folder}(?:{commands})(?: |{_END}))(?!{folder}(?:{running}|{_GIT_RUNS})){_NAME}(?: {_WORD})*"
    return f"{_START}(?!{words}{_END})"


def _options_pattern(options: ProgramOptions) -> str:
    """Matches a word that is one of these options, or a shortened form of one."""
    long = [f"--{_prefix_pattern(option)}(?:=[^ ]*)?" for option in options.options]
    letters = [f"-*[A-Za-z]*[{options.letters}][A-Za-z]*(?:{_WORD})?"] if options.letters else []
    return "|".join([*long, *letters])


def _prefix_pattern(option: str) -> str:
    """Matches the beginnings of a word."""
    first, rest = option[0], option[1:]
    return f"{_literal(first)}(?:{_prefix_pattern(rest)})?" if rest else _literal(first)


_GIT_OPTIONS = "|".join(f"--{_prefix_pattern(option)}(?:=[^ ]*)?" for option in git.RUNNING)
_GIT_RUNS = (
    f"git (?!(?:{'|'.join(map(_literal, sorted(git.SUBCOMMANDS - git.FORMS.keys())))})(?: |{_END}))"
    f"|git(?: {_WORD})* (?:-[A-Za-z]*[ceipsxuSO][A-Za-z]*|{_GIT_OPTIONS})"
    f"(?: |{_END})"
)
"""Lines of git that may run other programs."""


_LEAVES = r"(?:^|[ =:,@])\/|\.\."
"""Matches an absolute path, or one with `..`, in a command."""


def _elsewhere(directory: str, itself: str = "") -> str:
    """Matches paths outside of the directory, as written. `itself`: an expression for the directory, if it counts too."""
    return f"{_START}(?!{_literal(directory.rstrip('/') + '/')}{itself}|[^\\/~])"


def _outside(rules: Sequence[Rule], directory: str) -> str:
    """Matches paths outside of the directory, except folders that a last rule allows."""
    last = max(number for number, rule in enumerate(rules) if rule.action != "allow")
    allowed = [rule for rule in rules[last + 1 :] if rule.pattern.endswith("/*")]
    itself = f"|{_literal(directory)}{_END}"
    return f"{_elsewhere(directory, itself)}{_but_for(allowed)}|{_DOTS}"
