"""Permission rules: matching, order, several patterns."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from universal.agent_spec import ALL_FAMILIES
from universal.agents.claude.spec import CLAUDE
from universal.permissions import (
    BYPASS,
    DEFAULT_RULES,
    Access,
    DirectoryRules,
    Enforcement,
    Policy,
    Rule,
    combine,
    decide,
    matches,
    rules_from_config,
    rules_from_json,
    with_home,
)
from universal.registry import agents


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "anything at\nall", True),
        ("git *", "git status", True),
        ("git *", "git", True),
        ("git *", "gitk", False),
        ("src/*.py", "src/a/b.py", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("a+b", "a+b", True),
        ("a+b", "aab", False),
    ],
)
def test_wildcards(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_no_rule_says_nothing() -> None:
    assert decide("bash", ["ls"], []) is None
    assert decide("bash", ["ls"], [Rule("edit", "*", "allow")]) is None


def test_the_last_match_decides() -> None:
    rules = [Rule("bash", "*", "deny"), Rule("bash", "git *", "allow")]
    assert decide("bash", ["git log"], rules) == "allow"
    assert decide("bash", ["rm x"], rules) == "deny"
    assert decide("bash", ["git log"], [*rules, Rule("*", "*", "ask")]) == "ask"


def test_every_pattern_must_be_allowed_and_one_denial_is_enough() -> None:
    rules = [Rule("bash", "echo *", "allow"), Rule("bash", "rm *", "deny")]
    assert decide("bash", ["echo a", "echo b"], rules) == "allow"
    assert decide("bash", ["echo a", "rm b"], rules) == "deny"
    assert decide("bash", ["echo a", "ls"], rules) is None


def test_config_forms() -> None:
    assert rules_from_config("allow") == (Rule("*", "*", "allow"),)
    assert rules_from_config({"edit": "ask", "bash": {"*": "ask", "git *": "allow"}}) == (
        Rule("edit", "*", "ask"),
        Rule("bash", "*", "ask"),
        Rule("bash", "git *", "allow"),
    )
    assert rules_from_config(None) == ()


EDIT, OUTSIDE = Access("edit", ("a.txt",)), Access("external_directory", ("/etc/*",))


def test_a_deny_of_the_configuration_holds_against_session_rules_and_grants() -> None:
    policy = Policy(config=(Rule("edit", "*", "deny"),), session=(Rule("*", "*", "allow"),), grants=(Rule("edit", "*", "allow"),))
    assert policy.action(EDIT) == "deny"


def test_a_deny_of_the_session_holds_against_grants() -> None:
    policy = Policy(session=(Rule("edit", "*", "deny"),), grants=(Rule("edit", "*", "allow"),))
    assert policy.action(EDIT) == "deny"


def test_a_later_rule_of_the_configuration_overrides_its_earlier_deny() -> None:
    policy = Policy(config=(Rule("edit", "*", "deny"), Rule("edit", "a.*", "allow")))
    assert policy.action(EDIT) == "allow"


def test_outside_of_the_project_is_asked_by_default_except_in_bypass_mode() -> None:
    assert Policy().action(OUTSIDE) == "ask"
    assert Policy(mode="accept-edits").action(OUTSIDE) == "ask"
    assert Policy(mode="bypass").action(OUTSIDE) is None
    assert Policy(config=(Rule("external_directory", "*", "ask"),), mode="bypass").action(OUTSIDE) == "ask"
    assert Policy(grants=(Rule("external_directory", "/etc/*", "allow"),)).action(OUTSIDE) == "allow"
    assert Policy(grants=(Rule("edit", "*", "allow"),)).action(OUTSIDE) == "ask"


def default_folder_actions(environment: dict[str, str], folder: str) -> tuple[str | None, str | None]:
    """What Claude's default rules say of a file in its folder `skills`, and of an edit of a plan."""
    defaults = (*DEFAULT_RULES, *with_home(CLAUDE.rules.defaults_in(environment), "/home/me"))
    outside, plan = Access("external_directory", (f"{folder}/skills/*",)), Access("edit", (f"{folder}/plans/p.md",))
    return Policy(defaults).action(outside), Policy(defaults, mode="plan").action(plan)


def test_the_default_rules_of_claude_follow_its_configuration_folder() -> None:
    moved = {"CLAUDE_CONFIG_DIR": "/srv/x/../claude/"}
    assert default_folder_actions({}, "/home/me/.claude") == ("allow", "allow")
    assert default_folder_actions({"CLAUDE_CONFIG_DIR": ""}, "/home/me/.claude") == ("allow", "allow")
    assert default_folder_actions(moved, "/srv/claude") == ("allow", "allow")
    assert default_folder_actions(moved, "/home/me/.claude") == ("ask", "deny")


@pytest.mark.parametrize("value", ["relative", "/srv/*", "/srv/?"])
def test_a_configuration_folder_that_is_no_absolute_path_allows_nothing(value: str) -> None:
    assert default_folder_actions({"CLAUDE_CONFIG_DIR": value}, "/home/me/.claude") == ("ask", "deny")
    assert default_folder_actions({"CLAUDE_CONFIG_DIR": value}, value) == ("ask", "deny")


def test_plan_mode_edits_nothing_but_the_agents_plan() -> None:
    defaults = (*DEFAULT_RULES, Rule("edit", "/home/me/.claude/plans/*", "allow"))
    policy = Policy(defaults, config=(Rule("edit", "*", "allow"),), mode="plan")
    assert policy.action(EDIT) == "deny"
    assert policy.action(Access("edit", ("/home/me/.claude/plans/p.md",))) == "allow"
    assert policy.action(Access("bash", ("ls",))) is None


def test_a_call_that_is_not_understood_is_never_allowed_where_a_rule_may_forbid_it() -> None:
    call = Access("bash", ("echo $[x]",), understood=False)
    assert Policy(config=(Rule("bash", "*", "deny"), Rule("bash", "echo *", "allow"))).action(call) == "ask"
    assert Policy(config=(Rule("bash", "rm *", "deny"),)).action(call) == "ask"
    assert Policy(config=(Rule("bash", "*", "deny"),)).action(call) == "deny"
    assert Policy(config=(Rule("bash", "*", "allow"),)).action(call) == "allow"
    assert Policy().action(call) is None


def test_a_call_known_only_by_a_title_is_never_allowed_automatically() -> None:
    assert Policy(config=(Rule("*", "*", "allow"),)).action(Access("bash", ("ls",), opaque=True)) == "ask"


def test_an_unknown_action_asks() -> None:
    assert rules_from_json([{"permission": "bash", "pattern": "*", "action": "allowed"}]) == (Rule("bash", "*", "ask"),)


def test_rules_for_an_agent_of_its_own_cannot_undo_a_configured_deny() -> None:
    policy = Policy((), (Rule("bash", "*", "deny"),), (Rule("bash", "*", "allow"), Rule("edit", "*", "ask")), ())
    assert policy.for_agent() == (Rule("bash", "*", "deny"), Rule("edit", "*", "ask"))


DENY_RM, ALLOW_ALL, ASK_RM = Rule("bash", "rm *", "deny"), Rule("bash", "*", "allow"), Rule("bash", "rm *", "ask")


def test_an_engine_that_does_not_read_a_project_gets_what_it_denies() -> None:
    """OpenCode reads the person's configuration itself, and an untrusted project's not at all."""
    policy = Policy((), combine((ALLOW_ALL,), (DENY_RM,)), person=(ALLOW_ALL,))
    assert policy.for_engine(reads_project=True) == ()
    assert decide("bash", ("rm x",), policy.for_engine(reads_project=False)) == "deny"


def test_an_engine_that_reads_a_project_keeps_what_the_person_denies() -> None:
    policy = Policy((), combine((DENY_RM,), (ASK_RM, ALLOW_ALL)), (ASK_RM,), person=(DENY_RM,))
    told = policy.for_engine(reads_project=True)
    assert decide("bash", ("rm x",), (DENY_RM, ASK_RM, ALLOW_ALL, *told)) == "deny"
    assert decide("bash", ("rm x",), policy.for_agent()) == "deny", "an ask of the session is weaker"
    alone = Policy((), (DENY_RM,), (ASK_RM,), person=(DENY_RM,))
    assert alone.for_engine(reads_project=True) == (ASK_RM,), "without a project's rules it knows all but the session's"


def test_an_engine_gets_no_ask_that_its_project_does_not_weaken() -> None:
    person, project = (Rule("bash", "*", "ask"),), (Rule("edit", "*", "allow"),)
    assert Policy((), combine(person, project), person=person).for_engine(reads_project=True) == ()


def test_an_allow_of_ours_undoes_no_rule_of_an_agent_of_the_persons_own() -> None:
    policy = Policy((), combine((DENY_RM,), (ALLOW_ALL,)), mode="reviewer", person=(DENY_RM,))
    assert not [rule for trusted in (True, False) for rule in policy.for_engine(reads_project=trusted) if rule.action == "allow"]


def test_home_is_expanded_at_the_start_of_a_pattern_only() -> None:
    rules = (Rule("read", "~/x/*", "deny"), Rule("read", "$HOME/y", "deny"), Rule("read", "a~/b", "deny"))
    assert [rule.pattern for rule in with_home(rules, "/home/me")] == ["/home/me/x/*", "/home/me/y", "a~/b"]


GAPS = Enforcement("a gate", {"task": "Subagents are not seen.", "mcp": "MCP calls are not seen."}, absent=("skill",))
NOTHING = Enforcement("x", {"*": "Nothing is seen."}, absent=("skill",))


@pytest.mark.parametrize(
    ("enforcement", "rules", "keys"),
    [
        (GAPS, [Rule("task", "*", "deny")], {"task"}),
        (GAPS, [Rule("task", "*", "allow")], set()),
        (GAPS, [Rule("*", "*", "ask")], {"task", "mcp"}),
        (GAPS, [Rule("files_*", "*", "deny")], {"mcp"}),
        (GAPS, [Rule("external_directory", "*", "deny"), Rule("plan_enter", "*", "deny")], set()),
        (GAPS, [Rule("skill", "*", "deny")], set()),
        (NOTHING, [Rule("edit", "*", "deny"), Rule("skill", "*", "deny")], {"edit"}),
        (Enforcement("x"), [Rule("*", "*", "deny")], set()),
    ],
)
def test_gaps_are_the_keys_whose_rules_cannot_be_enforced(enforcement: Enforcement, rules: list[Rule], keys: set[str]) -> None:
    assert set(enforcement.gaps(rules)) == keys


def test_claude_is_held_to_all_rules() -> None:
    assert agents()["claude"].rules.enforcement.gaps([Rule("*", "*", "deny")]) == {}


PARTS = [
    None,
    *("allow", "ask", "deny"),
    *({"*": one, "touch *": other} for one in ("allow", "ask", "deny") for other in ("allow", "ask", "deny", None)),
]
CALLS = [Access("bash", ("touch x",)), Access("bash", ("ls",)), Access("edit", ("x",))]
STRICTNESS = {"deny": 2, "ask": 1, "allow": 0, None: 0}


def test_a_call_is_asked_about_once_while_rules_cannot_be_read() -> None:
    policy = Policy(config=combine((Rule("read", "*.key", "deny"),), (), unread=True))
    assert policy.action(Access("bash", ("cat a",))) == "ask"
    assert policy.action(Access("read", ("a",), implied=True)) is None
    assert policy.action(Access("read", ("b.key",), implied=True)) == "deny"


ACTIONS = st.sampled_from(["allow", "ask", "deny", None])
PATTERNS = st.sampled_from(["*", "touch *", "touch x", "ls", "x", "?s"])
SOURCES = st.one_of(
    ACTIONS,
    st.dictionaries(
        st.sampled_from(["bash", "edit", "*", "b*"]), st.one_of(ACTIONS, st.dictionaries(PATTERNS, ACTIONS, max_size=3))
    ),
).map(rules_from_config)
RANK = {"deny": 3, "ask": 2, None: 1, "allow": 0}


@given(SOURCES, SOURCES, SOURCES, st.sampled_from(CALLS), st.sampled_from(["build", "bypass", "accept-edits", "plan"]))
def test_no_source_weakens_what_a_stronger_one_denies_or_asks(
    person: tuple[Rule, ...], session: tuple[Rule, ...], project: tuple[Rule, ...], call: Access, mode: str
) -> None:
    """Person, session, project: a deny or an ask of one holds, whatever the weaker ones say."""
    policy = Policy((), combine(person, project), session, mode=mode, person=person)
    stronger = [decide(call.permission, call.patterns, rules) for rules in (person, session)]
    floor = max((RANK[action] for action in stronger if action in ("ask", "deny")), default=0)
    assert RANK[policy.action(call)] >= floor


@given(SOURCES, SOURCES, st.sampled_from(CALLS), st.sampled_from(["", "plan", "bypass", "reviewer"]))
@example(rules_from_config({"*": "allow", "b*": "ask"}), (Rule("*", "*", "allow"),), CALLS[0], "")
@example(rules_from_config({"edit": "deny", "b*": "allow", "*": "ask"}), (Rule("*", "*", "deny"),), CALLS[1], "")
def test_an_engine_that_reads_a_project_never_allows_what_the_person_asks_about_or_denies(
    person: tuple[Rule, ...], project: tuple[Rule, ...], call: Access, mode: str
) -> None:
    policy = Policy((), combine(person, project), mode=mode, person=person)
    own = decide(call.permission, call.patterns, person)
    merged = decide(call.permission, call.patterns, (*person, *project, *policy.for_engine(reads_project=True)))
    assert own not in ("ask", "deny") or RANK[merged] >= RANK[own]


@given(SOURCES, SOURCES, SOURCES, SOURCES, st.sampled_from(CALLS), st.sampled_from(["build", "bypass"]))
def test_a_deny_of_a_session_beats_every_grant(
    person: tuple[Rule, ...],
    session: tuple[Rule, ...],
    project: tuple[Rule, ...],
    grants: tuple[Rule, ...],
    call: Access,
    mode: str,
) -> None:
    policy = Policy((), combine(person, project), session, grants, mode, person)
    if decide(call.permission, call.patterns, session) == "deny":
        assert policy.action(call) == "deny"


@given(SOURCES, SOURCES, SOURCES, st.sampled_from(CALLS))
def test_rules_that_change_in_a_turn_only_become_stricter(
    before: tuple[Rule, ...], after: tuple[Rule, ...], session: tuple[Rule, ...], call: Access
) -> None:
    """An agent may edit the file with its rules."""
    at_start = Policy((), before, session, person=before)
    now = Policy((), after, session, person=after)
    policy = replace(now, held=DirectoryRules(before, before))
    assert RANK[policy.action(call)] == max(RANK[at_start.action(call)], RANK[now.action(call)])


@pytest.mark.parametrize(
    "name",
    [
        "opencode.json",
        "sub/opencode.jsonc",
        ".opencode/agent/build.md",
        ".opencode/plugin/p.ts",
        "/home/me/.config/opencode/config.json",
        "/home/me/.config/opencode/modes/plan.md",
    ],
)
@pytest.mark.parametrize("mode", ["build", "accept-edits", "bypass"])
def test_an_edit_of_a_file_with_rules_is_asked_about(name: str, mode: str) -> None:
    call, redirection = Access("edit", (name,)), Access("edit", (name,), implied=True)
    everything, this = (Rule("edit", "*", "allow"),), (Rule("edit", name, "allow"),)
    for rules in ((), everything):
        assert Policy((), rules, mode=mode).action(call) == "ask"
        assert Policy((), rules, mode=mode).action(redirection) == "ask"
    assert Policy((), this, mode=mode, person=this).action(call) == "allow", "a rule of the person that names it"
    assert Policy((), everything, grants=this, mode=mode).action(call) == "allow", "an answer"
    assert Policy((), this, mode=mode).action(call) == "ask", "a project does not open its own rules"
    assert Policy((), everything, grants=everything, mode=mode).action(call) == "ask", '"always" for another file'
    assert Policy((), everything, mode=mode).action(Access("edit", ("src/opencode.json.py",))) == "allow"


@pytest.mark.parametrize(
    "name",
    ["/p/.claude/settings.local.json", ".claude/agents/a.md", ".codex/rules/x.rules", "/home/me/.pi/agent/settings.json",
     ".config/amp/settings.json", "sub/.gemini/settings.json", ".kimi/config.toml", "/home/me/.kimi-code/config.toml",
     "/home/me/.config/goose/config.yaml"],
)  # fmt: skip
def test_an_edit_of_a_file_with_rules_of_any_agent_is_asked_about(name: str) -> None:
    everything = (Rule("edit", "*", "allow"),)
    files = tuple(file for spec in agents().values() for file in spec.rules.project_settings.rule_files)
    assert Policy((), everything, mode=BYPASS, rule_files=files).action(Access("edit", (name,))) == "ask"
    assert Policy((), everything, mode=BYPASS).action(Access("edit", (name,))) == "allow", "each agent's folder names its files"


def test_every_agent_that_reads_rules_of_a_project_names_their_files() -> None:
    named = {
        family
        for spec in agents().values()
        if spec.rules.project_settings.rule_files
        for family in spec.rules.project_settings.reads
    }
    # OpenCode's are those of this server, and Kilo names its own; Copilot has no file with rules that were seen to count.
    assert set(ALL_FAMILIES) - named == {"copilot"}


@pytest.mark.parametrize("unread", [False, True])
def test_no_rule_of_a_project_weakens_a_deny_of_the_person(unread: bool) -> None:
    for first, second, other in itertools.product(PARTS, PARTS, ({}, {"*": "ask"}, {"*": "allow"}, {"edit": "deny"})):
        person = rules_from_config({**other, "bash": first})
        project = rules_from_config({"bash": second, **other})
        rules = combine(person, project, unread=unread)
        session = (Rule("*", "*", "allow"),)
        for call in CALLS:
            if Policy(config=person).action(call) == "deny":
                assert Policy(config=rules, session=session, grants=session).action(call) == "deny", (first, second, other, call)


@pytest.mark.parametrize("mode", ["build", "bypass"])
def test_rules_that_cannot_be_read_ask_for_all_that_no_rule_denies(mode: str) -> None:
    allow = (Rule("*", "*", "allow"),)
    policy = Policy((), combine((Rule("edit", "*", "deny"),), allow, unread=True), allow, allow, mode)
    assert [policy.action(call) for call in CALLS] == ["ask", "ask", "deny"]
    assert decide("bash", ("ls",), policy.for_agent()) == "ask"


# --- the policy of a session whose agent has started this one -----------------------------------------------------------

STRICTNESS = ["allow", None, "ask", "deny"]
DRAWN_RULES = st.lists(
    st.builds(
        Rule,
        st.sampled_from(("bash", "edit", "*")),
        st.sampled_from(("*", "git *", "src/*")),
        st.sampled_from(("allow", "ask", "deny")),
    ),
    max_size=4,
).map(tuple)
DRAWN = st.builds(
    Policy, config=DRAWN_RULES, session=DRAWN_RULES, grants=DRAWN_RULES, mode=st.sampled_from(("build", "plan", BYPASS))
)


@given(
    above=DRAWN,
    below=DRAWN,
    access=st.builds(
        Access, st.sampled_from(("bash", "edit", "webfetch")), st.sampled_from((("git status",), ("src/a", "b"), ("x",)))
    ),
)
def test_the_stricter_answer_of_both_sessions_counts(above: Policy, below: Policy, access: Access) -> None:
    """For each access the stricter answer of both counts, whatever the rules, grants and modes."""
    both = replace(below, above=above).action(access)
    assert both == max(below.action(access), above.action(access), key=STRICTNESS.index)
    told = decide(access.permission, access.patterns, replace(below, above=above).for_agent())
    for rules in (below.for_agent(), above.config):
        alone = decide(access.permission, access.patterns, rules)
        assert alone in ("allow", None) or STRICTNESS.index(told) >= STRICTNESS.index(alone)


def test_an_agent_that_reads_rules_gets_those_of_the_session_above() -> None:
    above = Policy(config=(Rule("bash", "*", "deny"), Rule("bash", "git *", "allow")))
    below = Policy(config=(Rule("bash", "*", "allow"),), above=above)
    assert decide("bash", ("rm x",), below.for_agent()) == "deny"
    assert Rule("bash", "*", "deny") in below.session_for_agent()
    assert Rule("bash", "*", "deny") in below.for_engine(reads_project=False)
    assert replace(below, config=above.config).session_for_agent() == (), "it has these rules already"
