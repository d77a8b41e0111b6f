"""OpenCode's permission rules: which action applies to a request. Pure.

A rule is `{permission, pattern, action}`. The last rule that matches decides. A request with several patterns
(`echo hi && rm x`) is denied if one of them is, and allowed only if all are.
Source: OpenCode's documentation of permissions; recordings `perm_*` of OpenCode 1.18.33.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from universal.lib.jsonvalue import arr, obj, text

Action: TypeAlias = Literal["allow", "ask", "deny"]
Decision: TypeAlias = Literal["accept", "accept_for_session", "reject"]
"""A person's decision about one request."""
Reply: TypeAlias = Literal["once", "always", "reject"]
"""A decision in OpenCode's words."""
REPLIES: Mapping[str, Reply] = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
DECISIONS: Mapping[str, Decision] = {"once": "accept", "always": "accept_for_session", "reject": "reject"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `permission` and `pattern` are wildcard patterns: `*` matches any characters, `?` one. `tool`: of a grant."""

    permission: str
    pattern: str
    action: Action
    tool: str = ""

    def to_json(self) -> dict[str, str]:
        """The form of OpenCode's documents: `{permission, pattern, action}`."""
        return {"permission": self.permission, "pattern": self.pattern, "action": self.action}


MISSING_PLUGIN = "plugin"
"""The permission to make a call that plugins should have seen which could not be loaded. Only rules that name it count."""
DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("external_directory", "*", "ask"),
    Rule("doom_loop", "*", "ask"),
    Rule("read", "*.env", "ask"),
    Rule("read", "*.env.*", "ask"),
    Rule("read", "*.env.example", "allow"),
)
"""OpenCode 1.18.33's own defaults (recording `endpoints`, GET /agent), less its `*: allow`: without a rule the agent decides."""


def rules_from_json(value: Any) -> tuple[Rule, ...]:
    """Parse a session's `permission`, a list of `{permission, pattern, action}`. An unknown action becomes `ask`."""
    rows = [obj(row) for row in arr(value)]
    return tuple(Rule(text(row.get("permission")), text(row.get("pattern"), "*"), _action(row.get("action"))) for row in rows)


def rules_from_config(permission: Any) -> tuple[Rule, ...]:
    """Parse a configuration's `permission`: `"allow"`, or `{name: action | {pattern: action}}`, in order."""
    if isinstance(permission, str):
        return (Rule("*", "*", _action(permission)),)
    rules: list[Rule] = []
    for name, value in obj(permission).items():
        rows: Mapping[str, Any] = {"*": value} if isinstance(value, str) else obj(value)
        rules += [Rule(name, pattern, _action(action)) for pattern, action in rows.items()]
    return tuple(rules)


UNREAD_RULES = Rule("**", "**", "ask")
"""Stands for rules that could not be read. No `allow` of a session or a grant undoes it."""


def combine(person: tuple[Rule, ...], project: tuple[Rule, ...], *, unread: bool = False) -> tuple[Rule, ...]:
    """Return the rules of both sources in one list, in which nothing of the project weakens a deny or an ask of the person.

    The person's rules from the first of them on come again after the project's, then the project's denies, which the exceptions
    of the person's rules would hide. With `unread`, everything is asked about that no rule denies.
    """
    rules = _layers(person, project, kept=("deny", "ask"))
    if not unread:
        return rules
    return (UNREAD_RULES, *(rule for rule in rules if rule.action != "allow"))


def inherit(parent: tuple[Rule, ...], child: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules of a child session: its own behind its parent's, of which it weakens no deny."""
    return _layers(parent, child, kept=("deny",))


def _layers(strong: tuple[Rule, ...], weak: tuple[Rule, ...], *, kept: tuple[Action, ...]) -> tuple[Rule, ...]:
    """One list, in which the last match decides and `weak` does not weaken the first of the `kept` actions of `strong`."""
    if not weak:
        return strong
    start = next((index for index, rule in enumerate(strong) if rule.action in kept), len(strong))
    names = {rule.permission for rule in weak if rule.action != "deny"}
    again = strong[start:] if any(_may_overlap(rule.permission, names) for rule in strong[start:]) else ()
    denies = tuple(rule for rule in weak if rule.action == "deny") if any(r.action != "deny" for r in again) else ()
    return (*strong, *weak, *again, *denies)


def _by_other_names(access: Access, rules: Iterable[Rule]) -> Action | None:
    """What rules say that name a file absolutely, with `./` or `**/` before it, or from another base.

    OpenCode compares one name alone, and such a rule is void there. Here it forbids, and it allows nothing.
    """
    relevant = [rule for rule in rules if matches(rule.permission, access.permission)] if access.bases else []
    if all(rule.action == "allow" or not _names_something(rule) for rule in relevant):
        return None
    found = {action_by_other_names(pattern, access.bases, relevant) for pattern in access.patterns if pattern.strip("*")}
    return "deny" if "deny" in found else "ask" if "ask" in found else None


def action_by_other_names(pattern: str, bases: Sequence[str], rules: Sequence[Rule]) -> Action | None:
    """The action of the last rule, all of one permission, that names this file in any way. None if it is for all files.

    In: `bases`, the folder from which `pattern` counts, and others from which a rule may.
    """
    end = "/" * pattern.endswith("/")
    absolute = posixpath.normpath(posixpath.join(bases[0], pattern)) + end
    relative = [posixpath.relpath(absolute, base) + end for base in bases]
    names = dict.fromkeys((pattern, *relative, *(f"./{name}" for name in relative if not name.startswith("../"))))
    for rule in reversed(rules):
        if any(matches(rule.pattern, name) for name in names) or (rule.pattern[:1] == "/" and matches(rule.pattern, absolute)):
            return rule.action if _names_something(rule) else None
    return None


def _names_something(rule: Rule) -> bool:
    return bool(rule.pattern.strip("*?/. "))


_WILDCARDS = frozenset("*?")


def _may_overlap(permission: str, others: Collection[str]) -> bool:
    """Whether one of these names of permissions may stand for a permission that this one stands for."""
    return permission in others or (bool(others) and bool(_WILDCARDS & set("".join((permission, *others)))))


def _action(value: Any) -> Action:
    match value:
        case "allow" | "deny":
            return value
        case _:
            return "ask"


def decide(permission: str, patterns: Sequence[str], rules: Iterable[Rule]) -> Action | None:
    """Return the action for a request, or None if no rule matches all of its patterns."""
    relevant = [rule for rule in rules if matches(rule.permission, permission)]
    verdicts = {_last_match(pattern, relevant) for pattern in patterns or ("*",)}
    if "deny" in verdicts:
        return "deny"
    if verdicts == {"allow"}:
        return "allow"
    return "ask" if "ask" in verdicts else None


def _last_match(
    pattern: str, rules: Sequence[Rule], spell: Callable[[str, str], str] = lambda pattern, rule: pattern
) -> Action | None:
    return next((rule.action for rule in reversed(rules) if matches(rule.pattern, spell(pattern, rule.pattern))), None)


def _with_options_of(command: str, rule: str) -> str:
    """A command with its options as a rule writes them, if it has all of these.

    For `rm -rf *` the command `rm x -v -fr` is `rm -rf x`.
    """
    words = rule.replace("*", "").split()
    at = next((index for index, word in enumerate(words) if word.startswith("-")), 0)
    options = [word for word in words if word.startswith("-")]
    given = command.split()
    if not at or not _options_in(options) <= _options_in(given):
        return command
    operands = [word for word in given if not word.startswith("-")]
    return " ".join((*operands[:at], *options, *operands[at:]))


def _options_in(words: Iterable[str]) -> set[str]:
    """The options among words, each letter by itself. `--recursive` and `--force` are `-r` and `-f`, also shortened, and `-R`."""
    found: set[str] = set()
    for word in words:
        name = word[2:].partition("=")[0]
        letters = {letter for long, letter in (("recursive", "r"), ("force", "f")) if name and long.startswith(name)}
        if word.startswith("--"):
            found |= letters or {name}
        elif word.startswith("-"):
            found |= set(word[1:].replace("R", "r"))
    return found


class DirectoryRules(NamedTuple):
    """The rules of a directory's configuration: those of all sources (`combine`), and those of the person alone."""

    all: tuple[Rule, ...] = ()
    person: tuple[Rule, ...] = ()


_OPENCODE_FOLDERS = tuple(name + end for name in ("agent", "mode", "command", "plugin", "tool") for end in ("", "s"))
RULE_FILES = (
    *("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
    *(f".opencode/{name}/*" for name in _OPENCODE_FOLDERS),
    *(f".config/opencode/{name}" for name in ("config.json", *(f"{name}/*" for name in _OPENCODE_FOLDERS))),
    *(".mcp.json", ".cursor/cli.json"),
)
"""Files with the rules that this server applies, and of programs that no row of the registry knows. See `Policy.rule_files`."""

BUILD, PLAN, ACCEPT_EDITS, BYPASS = "build", "plan", "accept-edits", "bypass"
"""Ids of modes: the usual one, those in which files are never edited and edited unasked, and one with written rules alone."""
MODES = frozenset({"", BUILD, PLAN, ACCEPT_EDITS, BYPASS, "auto", "read-only", "full-access"})
"""Ids of modes of coding agents: an agent of the configuration with such a name only adds to the mode."""


@dataclass(frozen=True, slots=True)
class Access:
    """One permission that a tool call needs.

    patterns    all of them must be allowed: paths relative to the directory, commands, URLs
    always      the patterns that the answer "always" allows from then on
    metadata    what a person is shown beside the request
    understood  False: the call may do more than its patterns say (a shell line that does not parse)
    opaque      True: what the call does is known only from a title
    implied     True: only written rules concern it, no default (a shell command that reads a file)
    again       True: the call itself once more, by the rules of its kind. A person is asked about one of the two
    hidden      True: the patterns are what a program perhaps runs, reads or writes. Only rules that name something concern them,
                and a person is asked about what these deny: nobody knows whether it happens
    folds_case  True: the patterns are names on a disk to which `.ENV` is `.env` (macOS), so the stricter of both answers counts
    bases       the directory and the roots of the project: the patterns are files, which a rule may name from each, or absolutely
    walks       folders all of whose files are read: those that a rule forbids are to be looked up as `patterns`
    agent       the only agent to which `always` applies, for a tool that is no tool of OpenCode; "" for all agents
    tool        the agent's own name of an MCP server's tool (`mcp__SERVER__TOOL`): the only one to which `always` applies
    """

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...] = ("*",)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    understood: bool = True
    opaque: bool = False
    implied: bool = False
    again: bool = False
    hidden: bool = False
    folds_case: bool = False
    bases: tuple[str, ...] = ()
    walks: tuple[str, ...] = ()
    agent: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one session by their source, and the mode in force.

    A deny of the configuration holds whatever the session's own rules and grants allow. A deny of the session holds against
    grants, and an ask of the person against the session's allow. For the rest the last match decides, in the order of the fields.

    person  the person's own rules, which are among `config`
    held    the rules of the configuration when the turn began: what these deny or ask is not allowed before its end
    rule_files  files of agents that hold rules (`ProjectSettingsUse.rule_files`), beside RULE_FILES
    above   the policy of the session whose agent has started this one: the stricter of both counts
    servers  the MCP servers of the session
    """

    defaults: tuple[Rule, ...] = DEFAULT_RULES
    config: tuple[Rule, ...] = ()
    session: tuple[Rule, ...] = ()
    grants: tuple[Rule, ...] = ()
    mode: str = ""
    person: tuple[Rule, ...] = ()
    held: DirectoryRules | None = None
    rule_files: tuple[str, ...] = ()
    above: Policy | None = None
    servers: tuple[str, ...] = ()

    def action(self, access: Access) -> Action | None:
        """Return the action of the rules for an access, or None if no rule concerns it and the agent's mode decides."""
        if self.above is not None:
            return max(replace(self, above=None).action(access), self.above.action(access), key=_STRICTNESS.__getitem__)
        action = self._for_tool(access)._action_as_written(access)
        if self.held is None or self.held.all == self.config:
            return action
        earlier = replace(self, config=self.held.all, person=self.held.person, held=None)
        return max(action, earlier._action_as_written(access), key=_STRICTNESS.__getitem__)

    def _for_tool(self, access: Access) -> Policy:
        """Leave out what may be meant for another tool: its grants, and allows for a name that tools of two servers have.

        The tool `c` of the server `a_b` and `b_c` of `a` are both `a_b_c`. An allow for more than one server's tools stays.
        """
        grants = tuple([rule for rule in self.grants if rule.tool == access.tool])
        heads = [f"{served_name(name)}_" for name in self.servers]
        heads = [head for head in heads if access.permission.startswith(head)]
        if len(heads) < 2:
            return self if len(grants) == len(self.grants) else replace(self, grants=grants)
        is_told = sum(access.tool.startswith((f"mcp__{name}__", f"mcp__{_plain(name)}__")) for name in self.servers) < 2
        config, session, person = (
            tuple([rule for rule in rules if rule.action != "allow" or not rule.permission.startswith(min(heads, key=len))])
            for rules in (self.config, self.session, self.person)
        )
        return replace(self, config=config, session=session, person=person, grants=grants if access.tool and is_told else ())

    def _action_as_written(self, access: Access) -> Action | None:
        if access.implied and UNREAD_RULES in self.config:  # its call is asked about: once is enough
            readable = tuple(rule for rule in self.config if rule != UNREAD_RULES)
            return replace(self, config=readable)._action_as_written(access)
        action = self._action(access)
        if access.folds_case and action != "deny":
            folded = self._without_case()._action(_without_case_of(access))
            action = folded if folded in ("deny", "ask") else action
        return "ask" if UNREAD_RULES in self.config and action != "deny" else action

    def narrow(self, access: Access) -> Access:
        """An access as a person is asked about it: a hidden one with the patterns alone that need it, so that "always" covers no
        others. Files that a command reads or writes are in `filepath`, where clients look for the name."""
        if access.hidden:
            candidates = access.patterns if self.action(access) == "ask" else ()
            patterns = tuple([one for one in candidates if self.action(replace(access, patterns=(one,))) == "ask"])
            always = tuple([one for one in patterns if not _WILDCARDS & set(one)])
            access = replace(access, patterns=patterns, always=always)
        if access.implied and access.understood and access.permission in ("edit", "read") and "filepath" not in access.metadata:
            return replace(access, metadata={**access.metadata, "filepath": ", ".join(access.patterns)})
        return access

    def forbidden_patterns(self, permission: str) -> frozenset[str]:
        """The patterns by which rules may forbid something of this permission, where they name something."""
        held = self.held.all if self.held is not None else ()
        rules = (rule for rule in (*self.config, *self.session, *held) if rule.action != "allow")
        patterns = frozenset(rule.pattern for rule in rules if _names_something(rule) and matches(rule.permission, permission))
        return patterns if self.above is None else patterns | self.above.forbidden_patterns(permission)

    def _action_of_hidden(self, access: Access) -> Action:
        is_named = access.permission == "external_directory"  # a folder outside is one, whatever the rule's pattern
        rules = (*self.config, *self.session, *self.grants)
        relevant = [r for r in rules if matches(r.permission, access.permission) and (is_named or r.pattern.strip("*?/ "))]
        found = {_last_match(one, relevant) for one in access.patterns} | {_by_other_names(access, relevant)}
        if access.permission == "bash":
            found |= {_last_match(one, relevant, _with_options_of) for one in access.patterns}
        return "ask" if found & {"deny", "ask"} else "allow"

    def _action(self, access: Access) -> Action | None:
        if access.hidden:
            return self._action_of_hidden(access)
        user_rules = (*self.config, *self.session)
        by_other_names = {_by_other_names(access, rules) for rules in (self.config, user_rules)}
        if "deny" in by_other_names | {decide(access.permission, access.patterns, rules) for rules in (self.config, user_rules)}:
            return "deny"
        if self.is_held_by_plan(access):
            return "deny"
        defaults = () if self.mode == BYPASS or access.implied else self.defaults
        rules = (*defaults, *user_rules, *self.grants)
        action = decide(access.permission, access.patterns, rules)
        is_asked_by_other_name = "ask" in by_other_names and not self._is_answered(access)
        if action in ("allow", None) and (is_asked_by_other_name or self._must_ask(access)):
            return "ask"
        if action == "ask" or (access.understood and not access.opaque):
            return action
        if access.opaque and action == "allow":
            return "ask"
        if may_forbid(user_rules, (access.permission,)):
            return "ask"
        if access.understood:
            return action
        return decide(access.permission, access.patterns, (rule for rule in rules if rule.pattern == "*"))

    def _must_ask(self, access: Access) -> bool:
        """Whether a person must be asked although the last match allows: they said "ask", or it is a file with rules."""
        if access.permission == "edit" and any(map(self._holds_rules, access.patterns)):
            named = (rule for rule in (*self.person, *self.session, *self.grants) if rule.pattern.strip("*/"))
            return decide("edit", access.patterns, named) != "allow"  # a project does not open its own rules
        if access.permission == MISSING_PLUGIN:  # who allows everything may do so because of the plugin
            rules = (*self.person, *self.grants)
            return decide(MISSING_PLUGIN, access.patterns, (r for r in rules if r.permission == MISSING_PLUGIN)) != "allow"
        return not self._is_answered(access) and decide(access.permission, access.patterns, self.person) == "ask"

    def _is_answered(self, access: Access) -> bool:
        return decide(access.permission, access.patterns, self.grants) == "allow"

    def _holds_rules(self, path: str) -> bool:
        """Whether an agent that edits this file changes its own bounds."""
        return any(matches(file, path) or matches(f"*/{file}", path) for file in (*RULE_FILES, *self.rule_files))

    def _without_case(self) -> Policy:
        sources = (self.defaults, self.config, self.session, self.grants, self.person)
        defaults, config, session, grants, person = (
            tuple(replace(rule, pattern=_fold(rule.pattern)) for rule in rules) for rules in sources
        )
        return Policy(defaults, config, session, grants, self.mode, person, rule_files=tuple(map(_fold, self.rule_files)))

    def is_held_by_plan(self, access: Access) -> bool:
        """Return True if plan mode forbids the access: an edit of any file except the agent's own plan."""
        if self.mode != PLAN or access.permission != "edit" or access.implied:
            return False
        return decide("edit", access.patterns, self.defaults) != "allow"

    def for_agent(self) -> tuple[Rule, ...]:
        """The written rules as one list, for agents that enforce them: without what only answers their questions (grants,
        allows of the session), which could undo a deny of the configuration."""
        rules, more = _layers(self.config, self.session_for_agent(), kept=("deny",)), self._of_above()
        return (*rules, *more, *(rule for rule in rules if rule.action == "deny")) if more else rules

    def session_for_agent(self) -> tuple[Rule, ...]:
        own = tuple([rule for rule in self.session if rule.action != "allow"]) if self.session else ()
        return (*self._of_above(), *own) if self.above is not None else own

    def _of_above(self) -> tuple[Rule, ...]:
        """What the configuration denies or asks for the session above alone. Its rules of its own are among this one's."""
        if self.above is None or self.above.config == self.config:
            return ()
        return tuple(rule for rule in self.above.config if rule.action != "allow")

    def for_engine(self, *, reads_project: bool) -> tuple[Rule, ...]:
        """Return what an agent must be told that reads the person's configuration itself, and the project's if `reads_project`.

        It does not have the rules of a project that it must not read. It merges those of one that it reads so that a project may
        undo what the person denies or asks about. An agent of the person's own has rules that we do not see: no allow of ours
        undoes one. An ask is told only where the project allows something of it, since OpenCode has no subagents under it.
        """
        if not (self.config or self.person or self.session):
            return ()
        if not reads_project:
            rules = self.for_agent()
        else:
            of_project = Counter(self.config) - Counter(self.person)  # it may repeat an allow of the person's, behind an ask
            opened = {rule.permission for rule in of_project if rule.action == "allow"}
            asks = [rule.action == "ask" and not _may_overlap(rule.permission, opened) for rule in self.person]
            hidden = len(asks) - asks[::-1].index(True) if True in asks else 0  # an allow before such an ask would undo it
            told = tuple(rule for n, rule in enumerate(self.person) if not asks[n] and (rule.action != "allow" or n >= hidden))
            start = next((index for index, rule in enumerate(told) if rule.action != "allow"), len(told))
            held = told[start:] if self.config != self.person else ()
            rules = _layers(held, self.session_for_agent(), kept=("deny",))
        return rules if self.mode in ("", BUILD, PLAN) else tuple(rule for rule in rules if rule.action != "allow")


def served_name(name: str) -> str:
    """The name of an MCP server, or of its tool behind it (`SERVER__TOOL`), as OpenCode writes it in permissions."""
    return "_".join(_plain(name).split("__"))


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


_STRICTNESS: Mapping[Action | None, int] = {"allow": 0, None: 1, "ask": 2, "deny": 3}
"""Without a rule the agent's mode decides, which is stricter than an allow and less than a question."""


def _fold(name: str) -> str:
    """A name as such a disk compares it: without case, and with composed letters."""
    return unicodedata.normalize("NFC", name).casefold()


def _without_case_of(access: Access) -> Access:
    return replace(access, patterns=tuple(map(_fold, access.patterns)), bases=tuple(map(_fold, access.bases)))


def may_forbid(rules: Iterable[Rule], permissions: Iterable[str]) -> bool:
    """Return True if any rule could deny or ask for one of these permissions."""
    names = tuple(permissions)
    return any(rule.action != "allow" and matches(rule.permission, name) for rule in rules for name in names)


def denies_whole(rules: Iterable[Rule]) -> bool:
    """Return True if these rules, all of one permission, deny every request whatever its patterns."""
    whole = False
    for rule in rules:
        whole = rule.action == "deny" and (whole or rule.pattern in ("*", "**"))
    return whole


def with_home(rules: Iterable[Rule], home: str) -> tuple[Rule, ...]:
    """Rules with `~/` and `$HOME/` at the start of their patterns replaced, as OpenCode does."""
    folder = home.rstrip("/")
    placed: list[Rule] = []
    for rule in rules:
        is_home = rule.pattern.startswith(_HOMES)
        placed.append(replace(rule, pattern=f"{folder}/{rule.pattern.partition('/')[2]}") if is_home else rule)
    return tuple(placed)


_HOMES = ("~/", "$HOME/")


def matches(pattern: str, subject: str) -> bool:
    """Match the whole subject: `*` stands for any characters, `?` for one, and `git *` also matches a bare `git`."""
    return _matches_whole(pattern, subject) or (pattern.endswith(" *") and _matches_whole(pattern[:-2], subject))


@lru_cache(maxsize=2048)
def _pieces(pattern: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    """The expressions between the `*`s, each with its length.

    One expression for the whole pattern would try every way to place the `*`s. A repository writes the pattern and an agent
    the subject, so together they could stop the server.
    """
    pieces = pattern.split("*")
    return tuple(
        (re.compile("".join("." if c == "?" else re.escape(c) for c in piece), re.DOTALL), len(piece)) for piece in pieces
    )


def _matches_whole(pattern: str, subject: str) -> bool:
    (first, _), *rest = _pieces(pattern)
    match = first.match(subject)
    if match is None or not rest:
        return match is not None and match.end() == len(subject)
    *middle, (last, length) = rest
    for piece, _ in middle:  # the first place of each leaves most room for the next
        match = piece.search(subject, match.end())
        if match is None:
            return False
    start = len(subject) - length
    return start >= match.end() and last.fullmatch(subject, start) is not None


# --- who enforces rules ---------------------------------------------------------------------------------

PERMISSION_KEYS = (
    "edit", "bash", "read", "external_directory", "webfetch", "websearch", "task", "doom_loop", "skill", "todowrite", "mcp",
)  # fmt: skip
"""The keys of `Enforcement` and of docs/permissions.md. "mcp" stands for the tools of MCP servers, named SERVER_TOOL in rules."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who enforces the permission rules of a person with an agent.

    by       one phrase for tables: "a hook before every call"
    missing  permission key -> one sentence why a rule for it cannot be enforced; "*" stands for all keys
    absent   permission keys for which the agent has no tool
    partial  one sentence why rules that deny only some calls of a key do not hold, while a denial of the whole key does
    no_asks  one sentence on what happens instead, for an agent that refuses what a rule asks about
    tools_alone  keys whose rules hold for the agent's own tools, and not for what its commands and searches open
    """

    by: str
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    absent: tuple[str, ...] = ()
    partial: str = ""
    no_asks: str = ""
    tools_alone: tuple[str, ...] = ()

    def gap(self, key: str) -> str | None:
        """Return why a rule for this key cannot be enforced, or None if it can or the agent has no tool for it."""
        return None if key in self.absent else self.missing.get(key) or self.missing.get("*")

    def gaps(self, rules: Iterable[Rule], by_kernel: Collection[str] = ()) -> dict[str, str]:
        """Return the keys for which these rules deny or ask and cannot be enforced -> why.

        In: `by_kernel`, the keys whose denies a sandbox holds, and of `webfetch` what they ask.
        """
        all_rules = tuple(rules)
        open_rules = {
            key: [
                rule
                for rule in all_rules
                if _concerns(rule, key) and not (key in by_kernel and (rule.action == "deny" or key == "webfetch"))
            ]
            for key in PERMISSION_KEYS
        }
        reasons = {key: " ".join(self._reasons(key, concerned)) for key, concerned in open_rules.items()}
        return {key: why for key, why in reasons.items() if why}

    def _reasons(self, key: str, rules: Sequence[Rule]) -> list[str]:
        """Return why these rules, all of one key, are not enforced as written."""
        if key in self.absent or all(rule.action == "allow" for rule in rules):
            return []
        if why := self.gap(key):
            return [why]
        is_part_denied = any(rule.action == "deny" for rule in rules) and (key == "mcp" or not denies_whole(rules))
        is_asked = any(rule.action == "ask" for rule in rules)
        return [why for why, applies in ((self.partial, is_part_denied), (self.no_asks, is_asked)) if why and applies]


def _concerns(rule: Rule, key: str) -> bool:
    """Return True if a rule concerns a key. Only tools of MCP servers have names with `_` (SERVER_TOOL)."""
    if key != "mcp":
        return matches(rule.permission, key)
    is_key = rule.permission in (*PERMISSION_KEYS, "plan_enter", "plan_exit")
    return rule.permission == "*" or ("_" in rule.permission and not is_key)


OWN_QUESTIONS = Enforcement("the agent's own questions", {"*": "Calls that the agent does not ask about are not seen."})
"""Of an agent about which nothing is known."""
