"""Permission rules hold: what is denied does not happen, what is to be asked is asked, with each agent and in each mode.

The tables are in `support/matrix.py`, which says how to add an agent or an action, and `support/matrix_drivers.py`. A case is
one action in one mode: under a `deny`, then under an `ask` that is rejected, then under one that is accepted. That the call is
made in the end shows that it could have been made before. `make e2e` plays a part, `make e2e-all` the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

import pytest

from shim.processes.sandbox import find_tool

from .support.bench import Bench, Watch, bench, nightly
from .support.children import wait_for
from .support.matrix import ROWS, SECRET, TASK_WORDS, Ground, Row, TurnEvidence, rules
from .support.matrix_drivers import ADOPTED_DRIVERS, DRIVERS
from .support.network_log import OutgoingProxy
from .support.places import ADOPTED, PATIENCE
from .support.servers import configuration_file, configure
from .support.wire import TURN_S as USUAL_TURN_S
from .support.wire import Json, Stream, tools

NO_SANDBOX = find_tool(os.environ.get("PATH", os.defpath)).why
TURN_S = max(90, USUAL_TURN_S)
CASE_S = 400 * PATIENCE
"""Three turns, each with the start of an agent."""


def _cases(*, e2e: bool) -> list[object]:
    """(agent, mode, action) of the part that is played in `make e2e`, or of the rest."""
    return [
        pytest.param(agent, mode, action, id=f"{agent}-{mode}-{action.replace(' ', '_')}", marks=pytest.mark.xdist_group(agent))
        for agent, driver in DRIVERS.items()
        if agent not in ADOPTED_DRIVERS or agent == ADOPTED[0]
        for mode in driver.modes
        for action in ROWS
        if action in driver.scenes and (action, mode) not in driver.lacks and ((action, mode) in driver.in_e2e) == e2e
    ]


def _subagent_cases() -> list[object]:
    """A subagent that writes a file, with each agent that is given a session's own rules and has subagents."""
    return [
        pytest.param(agent, "build", "write of a subagent", id=agent, marks=[pytest.mark.xdist_group(agent), *marks])
        for agent, marks in (("claude", []), ("opencode", [pytest.mark.nightly]))
    ]


@pytest.fixture(scope="module")
def proxy() -> Iterator[OutgoingProxy]:
    running = OutgoingProxy()
    yield running
    running.close()


@pytest.fixture(scope="module")
def servers(proxy: OutgoingProxy) -> Iterator[dict[str, Bench]]:
    """One server for each agent, made when its first case needs it."""
    made: dict[str, Bench] = {}
    yield made
    for server in made.values():
        server.close()


@pytest.fixture
def server(servers: dict[str, Bench], proxy: OutgoingProxy, agent: str) -> Bench:
    if agent not in servers:
        driver = DRIVERS[agent]
        servers[agent] = Bench.open(agent, config={}, **driver.settings, **proxy.environment)
        driver.arrange(servers[agent])
    return servers[agent]


class Case:
    """One action in one mode, on one server."""

    def __init__(self, server: Bench, proxy: OutgoingProxy, mode: str, action: str) -> None:
        self.server, self.proxy, self.mode, self.action = server, proxy, mode, action
        self.ground = Ground(server)
        self.driver, self.row = DRIVERS[server.agent], ROWS[action]

    def play(
        self, permission: Json, reply: str | None, session_rules: Sequence[Json] = (), scene: str = ""
    ) -> tuple[TurnEvidence, list[str]]:
        """One turn under these rules, in a session of its own; each request is answered so (None: none may come).

        `permission` is of the configuration, `session_rules` are the session's own; `scene`: another one than
        the action's. Gives what is there afterwards, and the permissions that were asked for.
        """
        self.apply(permission)
        self.ground.fill()
        before, reached = len(self.server.model.requests()), len(self.proxy.hosts)
        stream = Stream(self.server.api)
        try:
            watch = Watch.on(self.server.api, stream, **({"permission": list(session_rules)} if session_rules else {}))
            at = watch.prompt(self.ground.scene(scene or self.driver.scenes[self.action]), agent=self.mode)
            asked = self.answer(stream, watch.session, at, reply)
            self._at_rest(stream, watch, at)
            messages = self.server.api.messages(watch.session)
            # Its agent would stay until it is idle for long: hundreds of them fill the machine.
            self.server.api.call("DELETE", f"/session/{watch.session}")
        finally:
            stream.close()
        bodies = [obj for r in self.server.model.requests()[before:] if isinstance(obj := r["body"], dict)]
        return TurnEvidence(self.ground, tuple(bodies), tuple(self.proxy.hosts[reached:]), tuple(messages)), asked

    def apply(self, permission: Json) -> None:
        """Write the rules into the person's configuration; OpenCode's providers stand in the same file."""
        file = configuration_file(self.server.place)
        config = json.loads(file.read_text())
        configure(self.server.place, {**config, "permission": permission})

    def answer(self, stream: Stream, session: str, at: int, reply: str | None) -> list[str]:
        """Answer requests, also those of subagents, until the turn of the session is over."""
        asked: list[str] = []

        def is_next(event: Json) -> bool:
            ended = event["type"] == "session.idle" and event["properties"]["sessionID"] == session
            return ended or event["type"] in ("permission.asked", "question.asked")

        while True:
            event = stream.wait(is_next, since=at, timeout_s=TURN_S)
            at = next(n for n, (_, e) in enumerate(stream.events) if e is event) + 1
            properties = event["properties"]
            if event["type"] == "session.idle":
                return asked
            if event["type"] == "question.asked":
                self.server.api.post(f"/question/{properties['id']}/reject")
                continue
            asked.append(properties["permission"])
            # fast-agent asks before each read: what the row is not about does not stand in the way of it.
            own = bool(_row_requests(self.row, asked[-1:]))
            self.server.api.post(f"/permission/{properties['id']}/reply", {"reply": reply or "reject" if own else "once"})

    def _at_rest(self, stream: Stream, watch: Watch, at: int) -> None:
        stream.quiet(0.6)
        idles = [e for e in watch.events(at) if e["type"] == "session.idle"]
        assert len(idles) == 1, "idle fires exactly once per turn"
        assert self.server.api.get("/permission") == []


@pytest.fixture
def case(server: Bench, proxy: OutgoingProxy, mode: str, action: str) -> Case:
    return Case(server, proxy, mode, action)


def _row_requests(row: Row, asked: list[str]) -> list[str]:
    """The requests that the row's rules make; the agent may ask about other things of the call by its mode."""
    return [name for name in asked if name in row.rules or row.key == "mcp"]


def _holds(case: Case) -> None:
    row, key = case.row, (case.action, case.mode)
    gap = case.driver.gap(*key) or (case.driver.unasked.get(key) if NO_SANDBOX else None)
    seen, asked = case.play(rules(row, "deny"), None)
    if gap:
        assert row.happened(seen), f"it is held now: remove the gap {gap!r}"
        return
    assert not row.happened(seen), f"{case.action} happened although it is denied"
    assert _row_requests(row, asked) == [], "what is denied is not asked"
    assert seen.requests, f"the model was asked: {json.dumps(seen.messages)[-2000:]}"
    if case.mode == "plan" and row.writes:
        return  # plan mode edits nothing, whatever the rules say
    if case.driver.is_switched_off(case.action, case.mode):
        _is_switched_off(case, row)
        return
    seen, asked = case.play(rules(row, "ask"), "reject")
    if key in case.driver.unasked:
        assert row.happened(seen) and _row_requests(row, asked) == [], "it is asked now: remove it from `unasked`"
        return
    is_held_anyway = key in case.driver.held_anyway
    was_asked = bool(_row_requests(row, asked)) or is_held_anyway
    assert was_asked, f"{case.action} was not asked about: {asked} {json.dumps(seen.messages)[-2000:]}"
    assert not row.happened(seen), f"{case.action} happened although a person has rejected it"
    seen, asked = case.play(rules(row, "ask"), "once")
    assert _row_requests(row, asked) or is_held_anyway, f"{case.action} was not asked about: {asked}"
    if is_held_anyway:
        assert not row.happened(seen), "it happens when it is accepted: remove it from `held_anyway`"
        return
    assert row.happened(seen), f"{case.action} did not happen although it was accepted: {json.dumps(seen.messages)[-2000:]}"


def _is_switched_off(case: Case, row: Row) -> None:
    """The agent has the tool only where no rule denies it or asks for it."""
    seen, asked = case.play(rules(row, "ask"), "once")
    assert _row_requests(row, asked) == [], "it is asked now: it is no longer switched off"
    assert not row.happened(seen), f"{case.action} happened although nobody was asked"
    seen, _ = case.play(rules(row, "allow"), "once")
    assert row.happened(seen), f"{case.action} did not happen although it is allowed: {json.dumps(seen.messages)[-2000:]}"


@pytest.mark.e2e
@pytest.mark.timeout(CASE_S)
@pytest.mark.parametrize(("agent", "mode", "action"), _cases(e2e=True))
def test_rules_hold(case: Case) -> None:
    _holds(case)


@pytest.mark.nightly
@pytest.mark.timeout(CASE_S)
@pytest.mark.parametrize(("agent", "mode", "action"), _cases(e2e=False))
def test_rules_hold_in_the_whole_matrix(case: Case) -> None:
    _holds(case)


@pytest.mark.e2e
@pytest.mark.timeout(CASE_S)
@pytest.mark.parametrize(("agent", "mode", "action"), _subagent_cases())
@pytest.mark.parametrize("rule_action", ["deny", *nightly("ask")])
def test_a_sessions_own_rule_holds_in_its_subagents(case: Case, agent: str, rule_action: str) -> None:
    rule = {"permission": "edit", "pattern": "*", "action": rule_action}
    seen, asked = case.play({}, "reject", [rule])
    assert not case.row.happened(seen), "a subagent wrote a file although a rule of the session forbids it"
    is_asked = rule_action == "ask" and agent != "opencode"  # with OpenCode, a session that asks has no subagents
    assert _row_requests(case.row, asked) == (["edit"] if is_asked else [])
    seen, _ = case.play({"edit": "allow"}, "once")
    assert case.row.happened(seen), f"the subagent could not have written at all: {json.dumps(seen.messages)[-2000:]}"


@pytest.mark.e2e
@pytest.mark.timeout(CASE_S)
@pytest.mark.parametrize(
    ("agent", "mode", "action"),
    [
        pytest.param(agent, "bypass", action, id=agent, marks=pytest.mark.xdist_group(agent))
        for agent, action in (("claude-agent-acp", "write"), ("codex", "websearch"))
    ],
)
def test_a_rule_that_is_written_later_holds_in_the_same_conversation(case: Case) -> None:
    """These agents are started in another way where a rule may forbid something, so they are started again."""
    case.apply({})
    case.ground.fill()
    stream = Stream(case.server.api)
    try:
        watch = Watch.on(case.server.api, stream)
        case.answer(stream, watch.session, watch.prompt(f"[scene:text] {TASK_WORDS}", agent=case.mode), None)
        before = len(case.server.model.requests())
        case.apply(rules(case.row, "deny"))
        at = watch.prompt(case.ground.scene(case.driver.scenes[case.action]), agent=case.mode)
        assert case.answer(stream, watch.session, at, None) == []
        messages = case.server.api.messages(watch.session)
        case.server.api.call("DELETE", f"/session/{watch.session}")
    finally:
        stream.close()
    bodies = [obj for r in case.server.model.requests()[before:] if isinstance(obj := r["body"], dict)]
    seen = TurnEvidence(case.ground, tuple(bodies), (), tuple(messages))
    assert not case.row.happened(seen), "it happened although it is denied now"
    assert seen.model_saw(TASK_WORDS), "the conversation does not go on"


PATHS_OF_PI = {
    "an at sign": ("read", {"path": "@secret.txt"}),
    "an at sign before the whole path": ("read", {"path": "@{project}/secret.txt"}),
    "a URL": ("read", {"path": "file://{project}/secret.txt"}),
    "a second path": ("read", {"path": "secret.txt", "filePath": "sub/new.txt"}),
    "a second path before": ("read", {"filePath": "sub/new.txt", "path": "secret.txt"}),
}


@pytest.mark.e2e
@pytest.mark.timeout(CASE_S)
@pytest.mark.parametrize(("agent", "mode", "action"), [pytest.param("pi", "bypass", "read", marks=pytest.mark.xdist_group("pi"))])
def test_a_path_is_judged_as_the_agent_opens_it(case: Case) -> None:
    for spelling, (tool, arguments) in PATHS_OF_PI.items():
        for permission, is_denied in (({"read": {"secret*": "deny"}}, True), ({}, False)):
            scene = f"tool:{tool}:{json.dumps(arguments)}"
            seen, asked = case.play({"*": "allow", **permission}, None, scene=scene)
            assert asked == []
            assert seen.tool_result_has(SECRET) is not is_denied, f"{spelling}: {json.dumps(seen.messages)[-2000:]}"


FAR = {"bash": "allow", "edit": "allow", "read": "allow", "external_directory": "deny"}
NEAR = {
    "bash": "allow",
    "read": {"*": "allow", ".env": "deny", "secrets/*": "deny"},
    "edit": {"*": "allow", "secrets/*": "deny"},
}


@pytest.mark.nightly
@pytest.mark.timeout(CASE_S)
@pytest.mark.parametrize(
    ("permission", "refused", "made"),
    [
        (
            FAR,
            "cat FAR/f; cd FAR && cat f; cp FAR/f x; mv in.txt FAR/y; rm FAR/f; mkdir FAR/d; touch FAR/t; chmod 600 FAR/f; "
            "chown root FAR/f; cat ../../outside/f",
            "head FAR/f; tail FAR/f; less FAR/f; grep i FAR/f; ls FAR; find FAR; sed -n p FAR/f; cat < FAR/f; cat link; "
            "bash -c 'cat FAR/f'; ln -s FAR/f l2; tar cf t.tar FAR/f; tee FAR/n < in.txt; echo x > FAR/e; "
            "python3 -c 'print(open(\"FAR/f\").read())'",
        ),
        (
            NEAR,
            "",
            "cat .env; head .env; grep i .env; cp .env x; cat < .env; cd secrets && cat f; echo x > secrets/b; "
            "tee secrets/c < in.txt; sed -i s/a/b/ secrets/f; mv secrets/f secrets/g; rm secrets/g",
        ),
    ],
    ids=["outside", "inside"],
)
def test_opencode_looks_at_these_commands_alone(permission: dict[str, object], refused: str, made: str) -> None:
    """The table of docs/permissions.md, without a sandbox."""
    with bench("opencode", config={"permission": permission}, SHIM_SANDBOX="off") as server:
        project, outside = server.place.project, server.place.project.parents[1] / "outside"
        for folder in (outside, project / "secrets"):
            folder.mkdir()
            (folder / "f").write_text("indigo\n")
        for name in (".env", "in.txt"):
            (project / name).write_text("indigo\n")
        (project / "link").symlink_to(outside / "f")
        session = server.api.session()
        for lines, state in ((refused, "error"), (made, "completed")):
            for line in filter(None, lines.split("; ")):
                before = len(tools(server.api.messages(session)))
                server.api.prompt(session, f"[scene:bash:{line.replace('FAR', str(outside))}] go")
                wait_for(lambda: session not in server.api.status(), TURN_S, lambda: server.shim.child.log()[-2000:])
                [call] = tools(server.api.messages(session))[before:]
                assert call["state"]["status"] == state, (line, call["state"])
