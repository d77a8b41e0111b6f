"""Agents that speak the Agent Client Protocol (JSON-RPC 2.0 over stdio): one codec for all of them.

An agent that answers `initialize` with another version than 1 is refused.
Parts: `profiles` (which agents, data), `setup` (models, modes, settings), `speech` (items), `tools` (tool calls),
`asks` (permissions, forms), `claude` (Claude that asks for every call), `host` (files, terminals), `errors` (ends
and errors), `context` (what they share).
Pure: no clock, no IO, no random; ids come from the injected factory.

A prompt waits here until the session exists and its settings are answered. An interrupt before that only drops the prompt.
Source: recordings in `compat_fixtures/agents/acp`; docs/agents-wire.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from universal.agents import kit
from universal.agents.acp import errors
from universal.agents.acp.asks import AskAlways, Asks
from universal.agents.acp.ends import HISTORY, LATE_S, STEADY
from universal.agents.acp.host import Host
from universal.agents.acp.logins import environment_method, key_variables
from universal.agents.acp.notes import Notes, PromptCost
from universal.agents.acp.profiles import Profile
from universal.agents.acp.setup import Change, MissingChoice, Setup
from universal.agents.acp.speech import Transcript
from universal.agents.acp.turns import Connection, Turns
from universal.agents.acp.wire import (
    ABORTED,
    CLIENT,
    ENCLOSED_CLIENT,
    IGNORED,
    OWN_WORK_ENDS,
    RETRYING,
    STEER,
    WRITING_CLIENT,
    Context,
    Msg,
    server_of,
)
from universal.claude_code import UNCHECKED, access_metadata
from universal.codec import IdFactory, Output, PermissionReply, Prompt, QuestionReply, SetTimer, Signal, WriteLine
from universal.codec import Stop as StopProcess
from universal.host import HostAnswer
from universal.items import Json
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonline import digest, get_text
from universal.lib.jsonrpc import JsonRpc, LineJoiner, MalformedMessage, Notification, Request, Response
from universal.lib.jsonvalue import obj
from universal.opencode import ask_first, keys_to_ask
from universal.permissions import BYPASS, PLAN, Rule, denies_whole, matches
from universal.setup import HEADER_VARIABLE, NO_SETUP, DirectorySetup
from universal.shell import is_read_only
from universal.tools import CLAUDE
from universal.turn import Input

VERSION = 1
"""The version of the protocol that is spoken here."""


class AcpCodec(kit.BaseCodec[Context]):
    """The codec of an ACP agent; see `universal.codec.Codec` for the methods' contract."""

    def __init__(self, ids: IdFactory, profile: Profile) -> None:
        self.name = profile.name
        super().__init__(Context(profile.name, ids, self._model))
        self._profile = profile
        self._rpc = JsonRpc()
        self._joiner = LineJoiner()
        self._setup = Setup(profile)
        self._talk = Transcript(self._ctx, untold_output=profile.untold_output, arguments_grow=profile.arguments_grow)
        self._host = Host(self._rpc, ids)
        self._asks = Asks(self._ctx, self._rpc, self._setup, self._host.approve)
        self._notes = Notes(self._ctx, self._setup)
        self._conn = Connection(
            profile,
            self._ctx,
            self._rpc,
            self._setup,
            self._talk,
            self._host,
            self._asks,
            self._notes,
            PromptCost(profile.usage_sums),
        )
        self._turns = Turns(self._conn)
        self._options: LaunchOptions | None = None
        self._ready = False
        self._session_request: tuple[str, Msg] | None = None
        """Method and parameters of the request that begins the session, for another try after a login."""
        self._auth_error: Msg | None = None
        """The error that demanded a login; {} after the login."""
        self._is_awaited = False
        """A prompt waits for the agent to be ready for it."""
        self._is_loading = False
        """A history is replayed, of which more may come after the answer to `session/load`."""
        self._delayed = self._conn.waiting
        self._tried: set[str] = set()
        self._change: Change | None = None

    def _model(self) -> Msg | None:
        model = self._setup.model
        if not model:
            return None
        return {"provider_id": self.name, "model_id": model, "variant": self._setup.variant}

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Return the agent's command. Model and mode are set over the protocol."""
        self._options = options
        self.native_session_id = options.native_session_id if options.resume else None
        if self._needs_all_asked(options.rules):
            self._asks.ask_always = ASK_ALWAYS
        env = dict(self._profile.env)
        if by := self._profile.asks_by:
            content = ask_first(keys_to_ask(options.rules), options.environment.get(by, ""))
            env |= {by: content} if content else {}
        if (own := options.setup.shim_server) is not None and self._profile.shows_servers:
            env[HEADER_VARIABLE] = own.headers["Authorization"]
        return LaunchSpec((options.binary, *self._profile.args), options.directory, env)

    def adopt(self, options: LaunchOptions) -> bool:
        """Begin a session in a process that waits, unless its rules are held by what the process was started with."""
        return not self._needs_restart(options.rules)

    def prepare(self) -> list[Output]:
        """Nothing: the handshake begins the session."""
        return []

    def start(self) -> list[Output]:
        """Send the handshake. Its answer creates the session, which fills `catalogue`."""
        client = WRITING_CLIENT if self._profile.reads_itself else CLIENT
        if self._options is not None and self._options.bounds is not None:
            client = ENCLOSED_CLIENT
        return [self._ask("initialize", {"protocolVersion": VERSION, **client})]

    def _needs_all_asked(self, rules: Iterable[Rule]) -> bool:
        """Return whether the agent must ask for every call, because one of these rules may forbid it."""
        return self._profile.asks_always and any(rule.action != "allow" for rule in rules)

    def _needs_restart(self, rules: Sequence[Rule]) -> bool:
        """Return whether the agent was started for other rules and would now hold back too much or too little."""
        ask_always, launched = self._asks.ask_always, self._options.rules if self._options else ()
        if self._profile.asks_by:
            return keys_to_ask(rules) != keys_to_ask(launched)
        if ask_always is None or not self._needs_all_asked(rules):
            return self._needs_all_asked(rules) != (ask_always is not None)
        return rules != launched and ask_always.meta(rules) != ask_always.meta(launched)

    def _has_other_servers(self, setup: DirectorySetup) -> bool:
        """Return whether the session began with other MCP servers: they cannot be changed while it runs."""
        return (
            self._options is not None
            and not self._profile.abilities.setup.reads_own
            and setup.servers != self._options.setup.servers
        )

    def _ask(self, method: str, params: Msg) -> WriteLine:
        return WriteLine(self._rpc.request(method, params)[1])

    # --- commands -------------------------------------------------------------------------------------

    INTERRUPTS_FIRST = True

    def _on_prompt(self, prompt: Prompt) -> Iterable[Output]:
        """Return the lines of a prompt. Its `system` text precedes it as `<system-reminder>`."""
        if self._needs_restart(prompt.rules) or self._has_other_servers(prompt.setup):
            return (StopProcess("other permission rules or MCP servers need another process", again=True),)
        self._delayed.append(prompt)
        return (*self._pump(), *self._await_answer())

    def _on_permission_reply(self, reply: PermissionReply) -> Iterable[Output]:
        return self._turns.after_reply(self._host.reply(reply) or self._asks.reply(reply))

    def _on_question_reply(self, reply: QuestionReply) -> Iterable[Output]:
        return self._turns.after_reply(self._asks.answer(reply))

    def _interrupt_by_answer(self) -> Iterator[Output]:
        return self._turns.refuse()

    @property
    def may_steer(self) -> bool:
        return self._turns.may_steer

    def steer(self, prompt: Prompt) -> list[Output]:
        return self._stamp(self._turns.steer(prompt))

    def proceed(self, permission_id: str) -> list[Output]:
        return self._stamp(self._turns.after_reply(self._host.proceed(permission_id) or self._asks.proceed(permission_id)))

    def discard(self) -> list[Output]:
        """Delete or close the session, so that the agent's own list does not fill with ours."""
        can = obj(obj(self._conn.agent.get("agentCapabilities")).get("sessionCapabilities"))
        method = next((f"session/{name}" for name in ("delete", "close") if name in can), "")
        return [self._ask(method, {"sessionId": self._conn.session})] if method and self._conn.session else []

    @property
    def has_conversation(self) -> bool:
        """True when the session has begun or was resumed."""
        return self._ready

    @property
    def mode(self) -> str:
        return self._setup.mode_id()

    def _pump(self) -> Iterator[Output]:
        """Advance the next prompt: send its next setting, or the prompt itself once all are set."""
        while self._ready and not self._is_loading and self._delayed and self._change is None and not self._turns.is_at_work:
            prompt = self._delayed[0]
            step = self._setup.next(prompt, self._conn.session, self._tried)
            if isinstance(step, Change):
                self._change = step
                self._tried.add(step.setting)
                yield self._ask(step.method, step.params)
            elif isinstance(step, MissingChoice) and step.setting == "mode":
                self._delayed.pop(0)
                self._tried.clear()
                yield from errors.prompt_failed(f"{self._profile.title} has no mode for {step.value}.", "mode_unavailable", None)
            elif isinstance(step, MissingChoice):
                self._tried.add(step.setting)
                yield errors.unavailable(step.setting, f"{self._profile.title} does not offer {step.value} here.", None)
            else:
                self._delayed.pop(0)
                self._tried.clear()
                yield from self._turns.write(prompt)

    def _await_answer(self) -> Iterator[Output]:
        """Bound the wait for the agent's next answer while a prompt needs it, from each answer to the next."""
        was_awaited, self._is_awaited = self._is_awaited, bool(self._delayed) and not self._turns.is_at_work
        if self._is_awaited:
            yield kit.await_handshake(self._profile.handshake_s)
        elif was_awaited:
            yield kit.end_handshake()

    def _give_up_answer(self) -> Iterator[Output]:
        """Give up an agent that does not answer, or wait no longer for the end of a history."""
        if self._is_loading:
            self._is_loading = False
            yield from self._pump()
        elif self._is_awaited:
            missing = next(iter(self._rpc.waiting_requests.values()), "initialize")
            resumes = self.native_session_id is not None and not self._ready
            title, after_s = self._profile.title, self._profile.handshake_s
            yield kit.handshake_failed(title, missing, resumes=resumes, after_s=after_s)

    def _interrupt(self) -> Iterator[Output]:
        count = len(self._delayed)
        if count and self._turns.is_at_work:  # on something of its own, which is told in the prompt's turn
            yield from self._turns.interrupt()
            yield from self._turns.end_now()
        elif not count:
            yield from self._turns.interrupt()
        self._tried.clear()
        self._delayed.clear()
        yield from self._await_answer()
        for _ in range(count):  # a prompt was not written yet, so there is nothing to stop
            yield Signal(Input.FAILED, error=dict(ABORTED), aborted=True)

    def on_timer(self, key: str) -> list[Output]:
        """End what nothing has come of for a while: a turn, a history, the handshake."""
        if key == kit.HANDSHAKE:
            return self._stamp(self._give_up_answer())
        if key == STEADY:
            self._turns.on_steady()
            return []
        if key == HISTORY:
            self._is_loading = False
            return self._stamp((*self._pump(), *self._await_answer()))
        return self._stamp((*self._turns.on_timer(), *self._pump(), *self._await_answer()))

    # --- lines ----------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """Read one line. Invalid JSON-RPC and unknown kinds are reported as `agent.unparsed`."""
        return [output for message in self._joiner.add(line) for output in self._receive(message)]

    def _receive(self, line: bytes) -> list[Output]:
        match self._rpc.classify(line):
            case Request() as request:
                return self._stamp(self._turns.on_request(request, line))
            case Notification() as note:
                return self._stamp(self._on_note(note, line))
            case Response() as response:
                return self._stamp(self._on_response(response))
            case MalformedMessage(why=why, raw=raw):
                return self._stamp((self._ctx.report_unparsed("no JSON-RPC", why, raw, digest(line)),))

    def _on_eof(self, exit_: Exit) -> Iterable[Output]:
        return self._turns.eof()

    def on_host_answer(self, answer: HostAnswer) -> list[Output]:
        return self._stamp(self._turns.on_host_answer(answer))

    def _on_note(self, msg: Notification, line: bytes) -> Iterator[Output]:
        if msg.method == "session/update":
            yield from self._turns.on_update(msg, line)
            if self._is_loading:
                yield SetTimer(HISTORY, LATE_S)
            if self._ready and get_text(obj(msg.params.get("update")), "sessionUpdate") == "available_commands_update":
                self.catalogue = self._setup.catalogue(self._conn.agent)
            yield from self._pump()
        elif msg.method == "$/cancel_request":
            yield from self._turns.after_reply(self._asks.withdraw(msg.params.get("requestId"), msg.raw))
        elif msg.method == OWN_WORK_ENDS:
            yield from self._turns.end_own_work()
        elif msg.method == RETRYING:
            yield self._turns.retry(get_text(msg.params, "detail", "category"), msg.raw)
        elif msg.method in IGNORED:
            self._setup.account(obj(msg.params.get("authStatus")))
            self._ctx.ignore(msg.method)
        else:
            yield self._ctx.report_unparsed(msg.method, "unknown notification", msg.raw, digest(line))

    # --- answers to us --------------------------------------------------------------------------------

    def _on_response(self, msg: Response) -> Iterator[Output]:
        if msg.method == "session/prompt":
            method = self._login_method(msg.error) if msg.is_error else ""
            if method and self._turns.take_back(msg):  # some agents make a session, and want the login for the first prompt
                self._ready, self._auth_error = False, msg.error
                yield self._ask("authenticate", {"methodId": method})
                yield from self._await_answer()
                return
            yield from self._turns.on_prompt_answer(msg)
            yield from self._pump()
            return
        if (handler := self.ANSWERS.get(msg.method)) is None:
            self._ctx.ignore("answer to no request of ours")
            return
        yield from handler(self, msg)
        yield from self._pump()
        yield from self._await_answer()

    def _on_initialized(self, msg: Response) -> Iterator[Output]:
        if msg.is_error:
            yield from self._fail_setup(errors.response_error(msg.error), msg.raw)
            return
        agent = obj(msg.result)
        version = agent.get("protocolVersion", VERSION)
        if version != VERSION:
            yield from self._fail_setup(errors.other_protocol(self._profile.title, version, VERSION), msg.raw)
            return
        self._conn.agent = agent
        capabilities = obj(agent.get("agentCapabilities"))
        self._setup.images = obj(capabilities.get("promptCapabilities")).get("image") is True
        options = self._options
        params: Msg = {"cwd": options.directory if options else "/"}
        yield from self._give_servers(params, obj(capabilities.get("mcpCapabilities")))
        if (ask_always := self._asks.ask_always) is not None:
            release = get_text(obj(agent.get("agentInfo")), "version")
            if errors.is_older(release, ask_always.since):
                yield from self._fail_setup(errors.too_old(self._profile.title, release, ask_always.since), msg.raw)
                return
            params["_meta"] = dict(ask_always.meta(options.rules if options else ()))
        can_resume = "resume" in obj(capabilities.get("sessionCapabilities"))
        if self.native_session_id is None:
            self._session_request = ("session/new", params)
        elif can_resume or capabilities.get("loadSession") is True:
            params["sessionId"] = self.native_session_id
            self._session_request = ("session/resume" if can_resume else "session/load", params)
        if self._session_request is not None:
            yield self._ask(*self._session_request)
        else:
            error = errors.make(f"{self._profile.title} cannot continue earlier conversations.", errors.SESSION_NOT_FOUND)
            yield from self._fail_setup(error, msg.raw)

    def _give_servers(self, params: Msg, capabilities: Msg) -> Iterator[Output]:
        """Add the MCP servers of the person's set-up to the parameters of a session, and tell of those that it cannot get."""
        setup = self._options.setup if self._options else NO_SETUP
        own = setup.shim_server
        servers = [s for s in setup.servers if s is own or not self._profile.abilities.setup.reads_own]
        has_remote = capabilities.get("http") is True
        refusals = {
            "takes no remote MCP servers": [s.name for s in servers if s.url and not has_remote],
            "would show `environment` and `headers` of MCP servers to all users of this machine": [
                s.name for s in servers if self._profile.shows_servers and s is not own and (s.environment or s.headers)
            ],
        }
        left_out = {name for names in refusals.values() for name in names}
        if own is not None and self._profile.shows_servers:
            servers[-1] = replace(own, headers=dict.fromkeys(own.headers, f"${{{HEADER_VARIABLE}}}"))
        params["mcpServers"] = [server_of(s) for s in servers if s.name not in left_out]
        for why, names in refusals.items():
            if names:
                text = f"{self._profile.title} {why}, so these have no effect: {', '.join(names)}."
                yield self._ctx.status("notice", text, {}, None)

    def _login_method(self, error: Msg) -> str:
        """Return the login that the agent can do by itself, if it wants one and none was tried, or ""."""
        if self._auth_error is not None or not errors.wants_login(error):
            return ""
        environment = {**(self._options.environment if self._options else {}), **self._profile.env}
        keys = (*self._profile.program.key_variables, *key_variables(self._profile.env))
        return environment_method(self._conn.agent.get("authMethods"), environment, keys)

    def _on_authenticated(self, msg: Response) -> Iterator[Output]:
        """Ask for the session again, or report why the login has failed."""
        error, self._auth_error = self._auth_error, {}
        if not msg.is_error and self._conn.session:
            self._ready = True
            return
        if not msg.is_error and self._session_request is not None:
            yield self._ask(*self._session_request)
            return
        made = errors.response_error(error or {}, self._conn.agent.get("authMethods"), self._conn.login_hint)
        yield from self._fail_setup({**made, "message": f"{made['message']}. It refused the login: {msg.message}"}, msg.raw)

    def _on_session(self, msg: Response) -> Iterator[Output]:
        resumed = msg.method != "session/new"
        if msg.is_error and (method := self._login_method(msg.error)):
            self._auth_error = msg.error
            yield self._ask("authenticate", {"methodId": method})
            return
        if msg.is_error:
            error = errors.response_error(msg.error, self._conn.agent.get("authMethods"), self._conn.login_hint)
            if resumed and error["code"] != "authentication_failed":
                error = errors.make(error["message"], errors.SESSION_NOT_FOUND)
            yield from self._fail_setup(error, msg.raw)
            return
        result = obj(msg.result)
        self._conn.session = get_text(result, "sessionId") or (self.native_session_id or "")
        self.native_session_id = self._conn.session or None
        self._setup.read(result, resumed=resumed)
        self._conn.spending.begin(resumed=resumed)
        self._ready = True
        if msg.method == "session/load":
            self._is_loading = True
            yield SetTimer(HISTORY, LATE_S)
        if self._delayed or not self._profile.tells_commands or self._setup.commands is not None:
            self.catalogue = self._setup.catalogue(self._conn.agent)

    def _on_set(self, msg: Response) -> Iterator[Output]:
        change, self._change = self._change, None
        if change is None:
            return
        if not msg.is_error:
            self._setup.note_change(change, obj(msg.result))
            yield from self._notes.mode(msg.raw)
        elif change.setting.startswith("mode"):
            if self._delayed:
                self._delayed.pop(0)
                self._tried.clear()
                yield from errors.prompt_failed(msg.message, "mode_unavailable", msg.raw)
        else:
            yield errors.unavailable(change.setting, msg.message, msg.raw)

    def _fail_setup(self, error: Msg, raw: Json) -> Iterator[Output]:
        """Fail every waiting prompt, because there will be no session and the process is of no use."""
        count = len(self._delayed)
        self._delayed.clear()
        yield kit.error_fact(error, raw)
        for _ in range(count):
            yield Signal(Input.FAILED, error=error)
        if not count or error["code"] != errors.SESSION_NOT_FOUND:
            yield StopProcess(error["message"])

    ANSWERS: ClassVar[dict[str, Callable[[AcpCodec, Response], Iterator[Output]]]] = {
        "initialize": _on_initialized,
        "authenticate": _on_authenticated,
        "session/new": _on_session,
        "session/load": _on_session,
        "session/resume": _on_session,
        "session/set_mode": _on_set,
        "session/set_model": _on_set,
        "session/set_config_option": _on_set,
        STEER: lambda codec, msg: codec._turns.on_steer_answer(msg),
    }
    """Method of ours -> what is done with its answer."""


# --- claude ----------------------------------------------------------------------------------------------

# Claude Code behind claude-agent-acp must ask for every call if a permission rule may forbid one. Pure.
#
# An `ask` rule of Claude Code for all tools holds in each of its modes, in its subagents, and against its own `allow` rules.
# So Claude asks about calls that its mode would have made by itself. This module says which of them a person is asked about
# all the same; the others are only checked by the rules.
# Source: runs of claude-agent-acp 0.100.0, of which docs/permissions.md tells.

_CHOICES = frozenset({"ExitPlanMode", "EnterPlanMode", "AskUserQuestion"})
"""Tools whose call is a question to a person, whatever the mode."""
_FREE = frozenset(
    {"Read", "NotebookRead", "Glob", "Grep", "LS", "LSP", "Skill", "SlashCommand", "Agent", "Task", "SendMessage"}
    | {"TodoWrite", "TaskCreate", "TaskUpdate", "ListMcpResources", "ListMcpResourcesTool", "ReadMcpResource"}
    | {"ReadMcpResourceTool"}
)
"""Tools that Claude Code uses in each mode without asking, as long as they stay in the project."""
_EDITS = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})


def is_for_person(mode: str, tool: str, arguments: Msg) -> bool:
    """Return whether a person would be asked about this call in this mode if there were no rules.

    Plan mode writes only Claude's own plan, which a rule of this server knows. In `accept-edits` a rule of this server asks
    about hidden files, as Claude does.
    """
    if tool in _CHOICES:
        return True
    if mode == BYPASS or tool in _FREE:
        return False
    if tool in _EDITS:
        return mode not in (PLAN, "accept-edits")
    return not (tool == "Bash" and is_read_only(get_text(arguments, "command")))


_PERMISSION = {"monitor": "bash", "write": "edit"}
"""Name of a row of Claude's tools -> the permission, where they differ."""


def denied_tools(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return Claude's tools whose every call the rules deny. No hook can allow what Claude's own settings deny."""
    paths: list[str] = []
    for name, row in CLAUDE.items():
        key = row.permission or row.tool
        key = _PERMISSION.get(key, key)
        if name not in UNCHECKED and denies_whole(rule for rule in rules if matches(rule.permission, key)):
            paths.append(name)
    return tuple(paths)


def _meta(rules: Sequence[Rule]) -> dict[str, Json]:
    denied = list(denied_tools(rules))
    permissions: dict[str, Json] = {"ask": ["*"], **({"deny": denied} if denied else {})}
    # Claude does not ask about commands in its sandbox unless it is told so.
    settings: dict[str, Json] = {"permissions": permissions, "sandbox": {"autoAllowBashIfSandboxed": False}}
    return {"claudeCode": {"options": {"settings": settings}}}


ASK_ALWAYS = AskAlways(
    meta=_meta,
    since="0.100.0",
    is_for_person=is_for_person,
    unchecked=frozenset(UNCHECKED) - _CHOICES,
    accessed=access_metadata,
)
