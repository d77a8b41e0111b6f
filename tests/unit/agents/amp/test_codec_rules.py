"""Amp's settings for OpenCode's rules. `amp_decides` reads entries as Amp's own matcher does."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from universal.agents.amp.codec import OTHER_TOOLS, TOOLS, disabled_tools, personal_settings_files, settings_with_rules
from universal.agents.amp.spec import AMP
from universal.events import PermissionData
from universal.permissions import Policy, Rule, rules_from_config
from universal.tools.accesses import Place, accesses_of

DIRECTORY = "/my dir/p.x"


def amp_decides(settings: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> str | None:
    """The action of the first entry that matches; None if none does. Source: the matcher of 0.0.1774569934."""
    for entry in settings["amp.permissions"]:
        if not fnmatch.fnmatchcase(tool.lower(), entry["tool"].lower()):
            continue
        if all(_matches(arguments.get(key), pattern) for key, pattern in entry.get("matches", {}).items()):
            return entry["action"]
    return None


def _matches(value: object, pattern: str) -> bool:
    if not isinstance(value, str):
        return False
    if len(pattern) >= 3 and pattern.startswith("/") and pattern.endswith("/"):
        return re.search(pattern[1:-1], _units(value), re.MULTILINE) is not None
    if "*" not in pattern:
        return value == pattern
    return re.search(f"^{re.escape(pattern).replace(chr(92) + '*', '.*')}$", value, re.MULTILINE) is not None


def _units(text: str) -> str:
    """A text as JavaScript sees it: characters above U+FFFF are two."""
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(data[place] << 8 | data[place + 1]) for place in range(0, len(data), 2))


def settings_of(permission: Any, *, mode: str = "build", own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return settings_with_rules(own or {}, rules_from_config(permission), mode, DIRECTORY)


def opencode_decides(rules: Sequence[Rule], tool: str, arguments: Mapping[str, Any], key: str) -> str | None:
    """What the rules say of the call's own permission."""
    data = PermissionData(permission_id="p", action=tool, metadata={"tool": tool, "input": dict(arguments)}, status="requested")
    policy = Policy(defaults=(), config=tuple(rules))
    found = [policy.action(access) for access in accesses_of("amp", data, Place(DIRECTORY)) if access.permission == key]
    return "deny" if "deny" in found else "ask" if "ask" in found else found[0]


# --- the whole of a key ----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize("key", list(TOOLS))
def test_a_rule_for_a_whole_key_refuses_each_of_its_tools_and_switches_it_off(key: str, action: str) -> None:
    settings = settings_of({key: action})
    for tool, _ in TOOLS[key]:
        assert amp_decides(settings, tool, {}) == "reject"
        assert tool in settings["amp.tools.disable"]


def test_a_rule_for_everything_refuses_every_tool() -> None:
    settings = settings_of("deny")
    tools = [tool for tools in TOOLS.values() for tool, _ in tools]
    for tool in (*tools, *OTHER_TOOLS, "mcp__github__create_issue", "tb__own"):
        assert amp_decides(settings, tool, {}) == "reject", tool


def test_a_later_allow_for_a_key_frees_its_tools() -> None:
    settings = settings_of({"*": "deny", "bash": "allow"})
    assert amp_decides(settings, "Bash", {"cmd": "rm x"}) is None
    assert "Bash" not in settings["amp.tools.disable"]
    assert amp_decides(settings, "Read", {"path": "/etc/passwd"}) == "reject"


@pytest.mark.parametrize("rule", ["git-hub_create_issue", "git_hub_*", "git-hub_*"])
def test_a_rule_for_a_tool_of_an_mcp_server_refuses_it(rule: str) -> None:
    settings = settings_of({rule: "deny"})
    assert amp_decides(settings, "mcp__git_hub__create_issue", {}) == "reject"
    assert amp_decides(settings, "mcp__other__create_issue", {}) is None


# --- the person's settings ---------------------------------------------------------------------------------


def test_our_entries_stand_before_those_of_the_person() -> None:
    own = {"amp.permissions": [{"tool": "Bash", "action": "allow"}], "amp.tools.disable": ["painter"], "amp.url": "https://x"}
    settings = settings_of({"bash": {"rm *": "deny"}}, own=own)
    assert amp_decides(settings, "Bash", {"cmd": "rm x"}) == "reject"
    assert amp_decides(settings, "Bash", {"cmd": "ls"}) == "allow"
    assert (settings["amp.url"], settings["amp.tools.disable"]) == ("https://x", ["painter"])


@pytest.mark.parametrize(("mode", "own"), [("bypass", {}), ("build", {"amp.dangerouslyAllowAll": True})])
def test_a_deny_holds_where_amp_is_to_allow_everything(mode: str, own: Mapping[str, Any]) -> None:
    rejecting = {"amp.permissions": [{"tool": "Read", "action": "reject"}], **own}
    settings = settings_of({"bash": "deny"}, mode=mode, own=rejecting)
    assert settings["amp.dangerouslyAllowAll"] is False
    assert amp_decides(settings, "Bash", {"cmd": "ls"}) == "reject"
    assert amp_decides(settings, "Read", {"path": "/etc/passwd"}) == "allow"


def test_the_settings_of_the_project_cannot_be_edited_under_a_rule() -> None:
    settings = settings_of({"bash": {"rm *": "deny"}})
    assert amp_decides(settings, "edit_file", {"path": f"{DIRECTORY}/.amp/settings.json"}) == "reject"
    assert amp_decides(settings, "apply_patch", {"patchText": "*** Add File: .amp/settings.json\n+{}"}) == "reject"
    assert amp_decides(settings, "edit_file", {"path": f"{DIRECTORY}/amp/settings.json"}) is None


def test_the_persons_settings_are_looked_for_where_amp_looks() -> None:
    assert personal_settings_files({"HOME": "/h"}, "/p") == ("/h/.config/amp/settings.json", "/h/.config/amp/settings.jsonc")
    assert personal_settings_files({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "/p")[0] == "/c/amp/settings.json"
    assert personal_settings_files({"HOME": "/h", "AMP_SETTINGS_FILE": "a.json"}, "/p") == ("/p/a.json",)


# --- patterns: never more permissive than OpenCode ---------------------------------------------------------

_SNIPPETS = st.one_of(
    st.sampled_from(
        ["rm", "git", "git -c", "ls", "x", "status", "-rf", "*", "?", " *", " ", "\n", "/", "../", "&&", ";", "|", "#"]
    ),
    st.sampled_from(
        ["$(rm x)", "`rm`", "'", '"', "\\", "sudo", "env", "A=1", "é", "\U0001f600", ".", "(", ")", "+", "^", "$", "~"]
    ),
    st.sampled_from(["[a]", "{a,b}", "sh -c", "cd", "find", "-exec", "-exec=rm", "time", "xargs", "export", "rg --pre", "tar"]),
    st.sampled_from(["--to-command", "ext::x", "bisect run", "make", "test", "-v", "read", "printf", "exec", "=", "%", "@", ":"]),
)
_LINES = st.lists(_SNIPPETS, min_size=1, max_size=6).flatmap(lambda words: st.sampled_from([" ".join(words), "".join(words)]))
_ACTIONS = st.sampled_from(["allow", "deny", "ask"])
_PATTERNS = st.one_of(_LINES, st.sampled_from(["*", "rm *", "git *", "git status *", "*rm*", "??", "ls", "* x", "*a*a*a*a*a*b"]))
_RULES = st.lists(st.tuples(_PATTERNS, _ACTIONS), min_size=1, max_size=4)


@given(_RULES, _LINES)
def test_amp_refuses_each_command_that_opencode_refuses(rows: list[tuple[str, Any]], line: str) -> None:
    rules = [Rule("bash", pattern, action) for pattern, action in rows]
    if opencode_decides(rules, "Bash", {"cmd": line}, "bash") in ("deny", "ask"):
        settings = settings_with_rules({}, rules, "build", DIRECTORY)
        assert amp_decides(settings, "Bash", {"cmd": line}) == "reject"
        assert amp_decides(settings, "shell_command", {"command": line}) == "reject"


_SEGMENTS = st.sampled_from(["src", "a.env", ".env", "..", ".", "", "x y", "é", "\U0001f600", "*", "a\nb", "p.x", "~"])
_PATHS = (
    st.tuples(st.sampled_from(["", f"{DIRECTORY}/", "/", "~/", "/my dir/"]), st.lists(_SEGMENTS, max_size=4))
    .map(lambda parts: parts[0] + "/".join(parts[1]))
    .filter(bool)
)
_PATH_PATTERNS = st.one_of(
    st.sampled_from(["*", "*.env", "src/*", "*/.env", "?", "??", "src/?", "..*", "/*", "*\n*", "*é"]),
    st.lists(_SEGMENTS, min_size=1, max_size=3).map("/".join),
)


@given(st.lists(st.tuples(_PATH_PATTERNS, _ACTIONS), min_size=1, max_size=4), _PATHS, st.sampled_from(["edit", "read"]))
@example([("./src", "deny")], "src", "edit")
@example([("*/.env", "deny")], ".env", "read")
@example([(f"{DIRECTORY}/*", "deny"), ("a.env", "allow")], "src", "edit")
def test_amp_refuses_each_path_that_opencode_refuses(rows: list[tuple[str, Any]], path: str, key: str) -> None:
    rules = [Rule(key, pattern, action) for pattern, action in rows]
    tool = {"edit": "edit_file", "read": "Read"}[key]
    if opencode_decides(rules, tool, {"path": path}, key) in ("deny", "ask"):
        settings = settings_with_rules({}, rules, "build", DIRECTORY)
        assert amp_decides(settings, tool, {"path": path}) == "reject"


@pytest.mark.parametrize("path", ["/etc/passwd", "~/x", "../x", f"{DIRECTORY}/../x", f"{DIRECTORY}x/y", f"{DIRECTORY}\n/x"])
def test_a_path_outside_is_refused_for_each_tool_with_a_path(path: str) -> None:
    settings = settings_of({"external_directory": {"*": "deny", "/free/*": "allow"}})
    for tool in ("Read", "edit_file", "create_file", "Grep"):
        assert amp_decides(settings, tool, {"path": path}) == "reject"
        assert amp_decides(settings, tool, {"path": "/free/x"}) is None
        assert amp_decides(settings, tool, {"path": f"{DIRECTORY}/x"}) is None


# --- patterns: plain calls go on ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permission", "line", "refused"),
    [
        ({"*": "ask", "git *": "allow"}, "git status --short", False),
        ({"*": "ask", "git *": "allow"}, "git", False),
        ({"*": "ask", "git *": "allow"}, "git -c core.pager=x log", True),
        ({"*": "ask", "git *": "allow"}, "git status && rm x", True),
        ({"*": "ask", "git *": "allow"}, "ls", True),
        ({"rm *": "deny"}, "npm test", False),
        ({"rm *": "deny"}, "rm x", True),
        ({"rm *": "deny"}, "rm", True),
        ({"rm *": "deny"}, "ls\nrm x", True),
        ({"rm *": "deny"}, "sudo rm x", True),
        ({"git push*": "deny"}, "uv run git push", True),
        ({"git push*": "deny"}, "/usr/bin/git push", True),
        ({"git push*": "deny"}, "git pull", False),
        ({"*": "ask", "uv *": "allow"}, "uv run ls", False),
        ({"rm *": "deny", "rm build": "allow"}, "rm build", False),
    ],
)
def test_commands(permission: Mapping[str, str], line: str, refused: bool) -> None:
    assert (amp_decides(settings_of({"bash": permission}), "Bash", {"cmd": line}) == "reject") is refused


@pytest.mark.parametrize(
    ("path", "refused"),
    [(f"{DIRECTORY}/src/a.py", False), ("src/a.py", False), (f"{DIRECTORY}/a.py", True), (f"{DIRECTORY}/src/../a.py", True)],
)
def test_paths(path: str, refused: bool) -> None:
    settings = settings_of({"edit": {"*": "deny", "src/*": "allow"}})
    assert (amp_decides(settings, "edit_file", {"path": path}) == "reject") is refused


# --- what a person is told -----------------------------------------------------------------------------------


def test_no_rule_that_refuses_changes_no_tool() -> None:
    assert disabled_tools(rules_from_config({"bash": "allow"})) == []
    assert settings_of({"bash": "allow"})["amp.permissions"] == []


def test_the_notice_says_that_amp_refuses_what_a_rule_asks_about() -> None:
    assert AMP.rules.enforcement.gaps(rules_from_config({"bash": "deny"})) == {}
    assert "cannot ask" in AMP.rules.enforcement.gaps(rules_from_config({"bash": "ask"}))["bash"]
    assert "pattern" in AMP.rules.enforcement.gaps(rules_from_config({"bash": {"rm *": "deny"}}))["bash"]
