"""Owns the process of a session's agent: its start, its lines in and out, and its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog

from shim.agents.directory import Agent
from shim.host.files.formatters import FormattedFile
from shim.host.plugins.plugin_hosts import PluginVerdict
from shim.host.terminals.host_calls import HostCalls
from shim.lib.errors import AgentError
from shim.processes.handle import AgentHandle, OnExit, OnLines
from shim.sessions.permissions.unattended_policy import Timer
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.edited_files import EditedFiles
from shim.sessions.session.session_sandbox import SessionSandbox
from shim.sessions.session.session_state import SessionState
from shim.sessions.session.tape import Tape, exchange
from universal.agent_spec import AgentSpec
from universal.codec import Catalogue, Codec, Command, Fact, Interrupt, Output, PermissionReply, Prompt, SetTimer
from universal.events import EventType, PermissionData
from universal.host import HostAnswer, HostCall, HostDone, StopCommand
from universal.launch import Exit, LaunchOptions
from universal.lib.jsonvalue import obj, text
from universal.setup import PARTS, DirectorySetup, SetupUse
from universal.tools.cards import view_call

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

log = structlog.get_logger()

ITEM_DELTA = EventType.ITEM_DELTA
IN_SANDBOX = "The agent runs in a sandbox, and this server does not. Use your own tools for files and commands."
CLOSE_S = 3.0
"""Seconds for agents to end by themselves when the server stops; the whole stop must stay under 5 s."""


async def variables_of(deps: SessionDeps, spec: AgentSpec, state: SessionState, *, with_project: bool) -> Mapping[str, str]:
    """The variables of an agent that is started: the session's, and those of plugins. Wakes the plugins."""
    if spec.abilities.setup.reads_own:  # it calls plugins itself
        return state.variables
    directory = state.session.record.directory
    shell = {"cwd": directory, "sessionID": state.id}
    return {**state.variables, **await deps.setups.variables(directory, shell, with_project=with_project)}


class SessionAgent:
    """The current process of a session's agent, if there is one, and processes that are being stopped.

    Each start and each stop begins a new generation. Lines and exits of an older one are dropped.
    """

    def __init__(self, deps: SessionDeps, session_id: str, directory: str, listener: SessionActor) -> None:
        self._deps = deps
        self._session_id = session_id
        self._directory = directory
        self._listener = listener
        self.edits = EditedFiles(self.format_file, listener.on_lines, self._go_on)
        self.tape: Tape | None = None
        """What the next server needs to go on with the process, if it could."""
        self._variables: Mapping[str, str] = {}
        """Those of the process besides the server's: of the session, and of plugins."""
        self._host = HostCalls(
            directory, deps.roots, lambda: {**deps.agents.environment(), **self._variables}, self.answer_host_call
        )
        self._stopping: dict[asyncio.Task[None], AgentHandle] = {}
        self._handle: AgentHandle | None = None
        self.codec: Codec | None = None
        self.agent: str | None = None
        """Name of the last started agent."""
        self.generation = 0
        self.resumes = False
        """Whether the process was started to go on with a conversation of its agent."""
        self._text: tuple[int, str] = (0, "")
        """The instructions of the last prompt, and the process that got it."""
        self.chosen: tuple[str, str] = ("", "")
        """The last prompt's agent by its name, and the mode in which the process runs it."""
        self.reads_project = False
        """Whether the process was started with the project's settings."""
        self.sandbox = SessionSandbox(listener, deps)
        self.is_untried = False
        """Whether the process waited for a session (`shim.agents.spares.spare_agents`) and has said nothing since."""
        self._greeting: Callable[[], Sequence[Output]] = tuple
        self._timers: dict[str, Timer] = {}
        self._told: Catalogue | None = None
        """The last catalogue whose limits were noted."""

    @property
    def is_alive(self) -> bool:
        """Whether the process can be written to."""
        return self._handle is not None and self._handle.alive

    @property
    def mode(self) -> str:
        """The mode that the agent reports, or the agent of the configuration that it runs in this mode, or ""."""
        (name, base), mode = self.chosen, self.codec.mode if self.codec is not None else ""
        return name if name != base and mode in ("", base) else mode

    @property
    def live_work(self) -> Sequence[str]:
        """What the agent does in the background, and what would end with its process."""
        return self.codec.live_work() if self.codec is not None and self.is_alive else ()

    @property
    def stderr(self) -> str:
        """The beginning and the end of what the process wrote to stderr so far."""
        return self._handle.stderr if self._handle is not None else ""

    async def start(self, agent: Agent, options: LaunchOptions) -> bool:
        """Start an agent. False if it was dropped or has exited before it was ready. Raises AgentError."""
        self.generation += 1
        self.resumes, self.reads_project, self._variables = options.resume, options.project_settings, options.variables
        generation = self.generation
        spares = self._deps.spares
        spare = await spares.take(agent, options) if spares is not None and not self.is_untried else None
        if generation != self.generation:  # stopped meanwhile
            if spare is not None:
                spare.kill()
            return False
        on_lines, on_exit = partial(self._listener.on_lines, generation), partial(self._exit, generation)
        if spare is not None:
            self.codec, self.agent, self.is_untried = spare.codec, agent.spec.name, True
            self._handle, first_outputs = spare.take(on_lines, on_exit, self.sandbox.judge)
            self.tape = exchange(self.tape, spare.tape, self._session_id)
            self._greeting = lambda: first_outputs
        elif not await self._spawn(agent, options, on_lines, on_exit):
            return False
        if spares is not None:
            spares.note_use(agent, options.directory)
            if options.resume and options.native_session_id:
                spares.forget_conversation(agent.spec.name, options.directory, options.native_session_id)
        pid = self._handle.pid if self._handle is not None else None
        is_spare = spare is not None
        log.info("agent.spawned", session_id=self._session_id, agent=self.agent, pid=pid, resume=options.resume, spare=is_spare)
        return True

    async def _spawn(self, agent: Agent, options: LaunchOptions, on_lines: OnLines, on_exit: OnExit) -> bool:
        """Start a process. False if it was dropped or has exited before it was ready. Raises AgentError."""
        self.expect()
        tapes, tape = self._deps.tapes, self.tape
        if tapes is None or tape is None or not tapes.may_hold(tape, agent, options):
            self.tape = tape = exchange(tape)
        codec = agent.spec.make(self._deps.ids.new if tape is None else tape.new_id)
        if tape is not None:
            tape.listen(codec)
        self.codec, self.agent, self.is_untried = codec, agent.spec.name, False  # it may write or exit before spawn returns
        self._greeting = codec.start
        try:
            spawn = self._deps.agents.spawn if tape is None else partial(self._deps.agents.spawn, hold=tape.hold)
            handle = await spawn(agent, options, codec, on_lines, on_exit, judge_host=self.sandbox.judge)
        except BaseException:  # a cancelled start leaves no codec without a process
            self.codec = None
            raise
        if self.codec is not codec:
            handle.kill()
            return False
        self._handle = handle
        if tape is not None:
            tape.attach(handle)
            tape.touch()
        return True

    def expect(self) -> None:
        """A prompt waits for a process. If this server ends before one has it, the next server starts one."""
        if self._deps.tapes is not None and self.tape is None:
            self.tape = self._deps.tapes.expect(self._session_id)

    def take_up(
        self, name: str, codec: Codec, process: AgentHandle, tape: Tape, *, resumes: bool, reads_project: bool
    ) -> tuple[OnLines, OnExit]:
        """Go on with the process of another server. Out: what gets its lines, and its exit."""
        self.generation += 1
        self.codec, self.agent, self._handle, self.tape = codec, name, process, tape
        self.resumes, self.reads_project = resumes, reads_project
        return partial(self._listener.on_lines, self.generation), partial(self._exit, self.generation)

    def leave(self) -> None:
        """Let the process go on without this server. Commands that it runs by this server end."""
        if self.tape is not None and self.tape.process is not None:
            self.tape.process.leave()
        elif self._handle is not None:
            self._handle.kill()
        self._host.drop()
        self._cancel_timers()

    def _end_use(self) -> None:
        """What was made for the process alone ends with it: its tape and its token."""
        self.tape = exchange(self.tape)
        if self._deps.agent_tokens is not None:
            self._deps.agent_tokens.end(self._session_id)

    def greet(self) -> None:
        """Send the codec's first lines, or handle what an agent that has waited said meanwhile."""
        if self.codec is not None:
            self._listener.on_outputs(self._greeting())

    # --- from the process ------------------------------------------------------------------------------------

    def receive(self, generation: int, lines: list[bytes]) -> bool:
        """Give lines to the codec. False if the process was dropped meanwhile; its remaining lines are dropped too."""
        codec = self.codec
        self.is_untried = False
        pieces: list[Fact] = []
        edits = self.edits
        if edits.ready and generation == self.generation and generation in edits.ready:
            self._listener.on_outputs(edits.ready.pop(generation))
        for at, line in enumerate(lines):
            if generation != self.generation or codec is None:
                return False
            outputs = codec.receive(line)
            if len(outputs) == 1:  # one piece of text that the agent itself has written: as nearly always
                (output,) = outputs
                if type(output) is Fact and output.type is ITEM_DELTA and output.child is None and not output.synthetic:
                    pieces.append(output)
                    continue
            if pieces:
                self._listener.on_pieces(pieces)
                pieces = []
            if self.tape is not None:
                self.tape.touch()
            if edits.is_on and edits.hold(generation, outputs, lines[at + 1 :]):
                return True
            self._listener.on_outputs(outputs)
        if pieces:
            self._listener.on_pieces(pieces)
        return True

    def _exit(self, generation: int, exit_: Exit) -> None:
        if generation != self.generation or self.codec is None:
            return
        codec, self.codec, self._handle = self.codec, None, None
        self._end_use()
        self._note_offer(codec)
        self._host.drop()
        self._cancel_timers()
        log.info("agent.exited", session_id=self._session_id, agent=codec.name, code=exit_.code, signal=exit_.signal)
        self._listener.on_exit(codec, exit_)

    # --- to the process --------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Give the agent a command, if there is one."""
        if isinstance(command, PermissionReply) and self.sandbox.reply(command):
            return
        if isinstance(command, Interrupt):
            self.sandbox.end_turn()
        if self.codec is not None:
            self._listener.on_outputs(self.codec.send(command))

    @property
    def may_steer(self) -> bool:
        """Whether the agent works on a prompt and can be given another one now."""
        return self.codec is not None and self.is_alive and self.codec.may_steer

    def steer(self, prompt: Prompt) -> None:
        """Give a working agent a prompt for its next step."""
        if self.codec is not None:
            self._listener.on_outputs(self.codec.steer(prompt))

    def recall(self, key: str) -> bool:
        """Ask the agent to give a steered prompt back. False if it cannot."""
        outputs = self.codec.recall(key) if self.codec is not None else []
        self._listener.on_outputs(outputs)
        return bool(outputs)

    def proceed(self, permission_id: str) -> None:
        """Let an announced call go on (`ToolCheck`)."""
        if self.codec is not None:
            self._listener.on_outputs(self.codec.proceed(permission_id))

    def setup(self, *, with_project: bool) -> DirectorySetup:
        """The directory's set-up as it is now. In: whether the agent has, or will have, the project's settings."""
        agent = self._deps.agents.get(self.agent or "")
        spec = agent.spec if agent is not None else None
        setups = self._deps.setups
        setup = setups.now(self._directory, self.chosen[0], spec, with_project=with_project)
        if self._session_id in setups.of_sessions:
            setup = setups.with_own(setup, self._session_id)
        self.edits.is_on = setup.has_formatters
        if self._deps.agent_tokens is None:
            return setup
        own = self._deps.agent_tokens.server(self._session_id)
        return setup._replace(servers=(*(server for server in setup.servers if server.name != own.name), own), has_shim=True)

    async def format_file(self, path: str) -> FormattedFile | None:
        """Format a file. None if nothing has changed it. None runs for an agent in a sandbox: it would run outside of it."""
        formatters, agent = self._deps.setups.formatters, self._deps.agents.get(self.agent or "")
        if formatters is None or agent is None or agent.spec.abilities.setup.reads_own or self.sandbox.bounds is not None:
            return None
        return await formatters.format(self._directory, path, with_project=self.reads_project)

    def _go_on(self, key: str) -> Sequence[Output]:
        return self.codec.proceed(key) if self.codec is not None else ()

    async def plugin_verdict(self, session_id: str, data: PermissionData) -> PluginVerdict:
        """Show a call to the person's plugins."""
        plugins, agent = self._deps.setups.plugins, self._deps.agents.get(self.agent or "")
        if plugins is None or agent is None or agent.spec.abilities.setup.reads_own:
            return PluginVerdict()
        meta = obj(data.metadata)
        view = view_call(agent.spec.name, text(meta.get("tool"), data.action), obj(meta.get("input")), [])
        call = {"tool": view.tool, "sessionID": session_id, "callID": text(meta.get("call_id")), "args": view.input}
        return await plugins.before(self._directory, call, with_project=self.reads_project)

    def lacks_text(self, use: SetupUse, words: str) -> bool:
        """Whether the instructions must go with the next prompt, because the process has not got them. They count as given."""
        before, self._text = self._text, (self.generation, words)
        if before[0] == self.generation:
            return before[1] != words and not use.reads_own
        return not use.has_text(resumes=self.resumes)

    def change_setup(self) -> bool:
        """Give a running agent the set-up as it is now. False if there is none, or if it takes one with a prompt alone."""
        if self.codec is None or not self.is_alive:
            return False
        outputs = self.codec.change_setup(self.setup(with_project=self.reads_project))
        self._listener.on_outputs(outputs or ())
        return outputs is not None

    def move_to_background(self) -> bool:
        """Move the work that the turn waits for to the background. False if the agent cannot do that."""
        outputs = self.codec.background() if self.codec is not None else None
        self._listener.on_outputs(outputs or ())
        return outputs is not None

    def write(self, data: bytes) -> None:
        """Write one line."""
        if self._handle is None:
            return
        try:
            self._handle.write(data)
        except AgentError as error:
            # on_exit reports its exit. A stuck process is ended here.
            log.warning("agent.write_failed", session_id=self._session_id, error=str(error))
            self._handle.kill()

    def interrupt(self) -> None:
        """Send SIGINT, for agents that have no message for it."""
        if self._handle is not None:
            self._handle.interrupt()

    def set_timer(self, timer: SetTimer) -> None:
        """Set or cancel a timer of the codec."""
        if (old := self._timers.pop(timer.key, None)) is not None:
            old.cancel()
        if timer.after_s is not None:
            self._timers[timer.key] = self._deps.call_later(timer.after_s, partial(self._on_timer, timer.key))

    def _on_timer(self, key: str) -> None:
        self._timers.pop(key, None)
        if self.codec is not None:
            if outputs := self.codec.on_timer(key):  # else what it waited for has come, or it takes in prompts now
                log.info("agent.timer", session_id=self._session_id, agent=self.agent, timer=key)
            self._listener.on_outputs(outputs)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def call_host(self, call: HostCall) -> None:
        """Begin a file or command call of the agent. The answer comes later. In a sandbox it is refused: we are outside."""
        if self.sandbox.bounds is None:
            self._host.do(call)
        elif not isinstance(call, StopCommand):
            self.answer_host_call(HostDone(call.call, trouble="refused", error=IN_SANDBOX))

    def answer_host_call(self, answer: HostAnswer) -> None:
        """Give the agent an answer to a file or command call."""
        if self.codec is not None:
            self._listener.on_outputs(self.codec.on_host_answer(answer))

    # --- its end ---------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Drop the process and wait until it has ended."""
        handle = self._detach()
        self.expect()
        if handle is not None:
            await handle.stop()

    def drop(self, *, kill: bool) -> bool:
        """Drop the process and stop it in the background, politely or at once. False if there was none."""
        handle = self._detach()
        if handle is None:
            return False
        if kill:
            handle.kill()
        task = asyncio.get_running_loop().create_task(handle.stop(), name=f"stop {self._session_id}")
        self._stopping[task] = handle
        task.add_done_callback(lambda ended: self._stopping.pop(ended, None))
        return True

    def _detach(self) -> AgentHandle | None:
        """Ignore the process from now on."""
        if self.codec is not None:
            self._note_offer(self.codec)
        handle, self._handle, self.codec = self._handle, None, None
        if self.tape is not None:
            self.tape.drop()
        self._end_use()
        self.generation += 1
        self._host.drop()
        self._cancel_timers()
        self._listener.on_detach()
        return handle

    def note_limits(self) -> None:
        """Note the limits of models that the agent has told, at the end of its turn."""
        codec = self.codec
        if codec is not None and codec.catalogue is not None and codec.catalogue is not self._told:
            self._told = codec.catalogue
            self._deps.agents.note_limits(codec.name, codec.catalogue.models, self._directory)
            self._note_offer(codec)

    def _note_offer(self, codec: Codec) -> None:
        if codec.catalogue is not None:
            self._deps.local_offers.note(codec.name, self._directory, codec.catalogue)

    async def close(self) -> None:
        """Wait for all processes that are being stopped: CLOSE_S seconds, then they are killed."""
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=CLOSE_S)
        for handle in list(self._stopping.values()):
            handle.kill()
        if self._stopping:
            await asyncio.wait(self._stopping)
        await self._host.close()


def setup_gaps(deps: SessionDeps, process: SessionAgent, spec: AgentSpec, directory: str) -> list[str]:
    """What of the set-up has no effect in a session with this agent, in a person's words."""
    with_project, name = process.reads_project, process.chosen[0]
    missing = [PARTS[part] for part in spec.abilities.setup.gaps(process.setup(with_project=with_project))]
    if spec.abilities.setup.reads_own:
        return missing
    config = deps.config_now(directory)
    own = config.agents[name].idle if config is not None and name in config.agents else ()
    keys = deps.setups.idle(directory, with_project=with_project, of_model=False)
    return [*missing, *keys, *(f"`agent.{name}.{key}`" for key in own)]
