"""Keeps model, effort and mode in force, Claude's offers, and our control requests that wait for an answer.

A request assumes that Claude accepts it, and the assumption is taken back if Claude refuses.
Source: recordings `controls`, `effort`, `text_state`; runs of both versions (`set_model "default"`, `effortLevel` null
and `auto` are accepted, `bypassPermissions` only with `--allow-dangerously-skip-permissions`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from universal.agents.claude import wire
from universal.agents.claude.wire import NAME, Msg
from universal.codec import Catalogue, Output, Prompt
from universal.items import Json
from universal.launch import LaunchOptions, LaunchSpec
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import JsonObject, obj
from universal.permissions import may_forbid
from universal.setup import NO_SETUP, ConfigAgent, DirectorySetup, McpServer

_FLAGS = (
    "--print",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",  # without it, stream-json is refused
    "--include-partial-messages",
    "--permission-prompt-tool=stdio",
)

TITLE = "generate_session_title"
RENAME = "rename_session"
_TITLE_CHARS = 2_000
"""Characters of a prompt that Claude makes a title of."""
_DRAFT, _CONTEXT = "prompt_draft_activity", "get_context_usage"
PREPARATION = (_DRAFT, _CONTEXT)
"""Subtypes of the requests with which Claude gets ready for a prompt. Their refusals mean nothing."""

SET_SERVERS, SERVERS = "mcp_set_servers", "mcp_status"
"""Subtypes of the requests that replace the MCP servers of a person's set-up, and that ask for the state of all."""

SKILL_SHELL = "disableSkillShellExecution"
"""Switches off the shell lines of skills and commands. They are no tool calls, so that no hook before calls sees them."""
_ASKS_SHELL = (2, 1, 332)
"""The first version that asks a hook before each of these lines."""
_MAKES_TITLES = (2, 1, 330)
"""The first version that is known to make a title while it answers."""
_FORGETS_TEXT = (2, 1, 330)
"""The first version that is known to take new instructions when it resumes a conversation."""
_ENVIRONMENT: dict[str, str | None] = {
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    "CLAUDE_CODE_BG_TASKS_REPORT_RUNNING": "1",
    "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-cli",
    # Rules read lines as bash does, from the project's directory. Else the person's own shell runs them, in the last directory.
    "CLAUDE_CODE_SHELL": "/bin/bash",
    "CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR": "1",
    # Set by a Claude Code that started the server. With them, a CLI takes itself for a child of that one.
    "CLAUDECODE": None,
    "CLAUDE_CODE_CHILD_SESSION": None,
    "CLAUDE_CODE_SESSION_ID": None,
    "CLAUDE_CODE_SSE_PORT": None,
}


@dataclass(slots=True)
class Settings:
    """The settings in force in one process."""

    catalogue: Catalogue | None = None
    mode: str = "default"
    _model: str = wire.DEFAULT_MODEL
    _variant: str = ""
    _resolved: dict[str, str] = field(default_factory=dict[str, str])
    """Alias of the catalogue -> the model that it stands for."""
    _waiting: dict[str, tuple[str, Callable[[], None] | None]] = field(
        default_factory=dict[str, "tuple[str, Callable[[], None] | None]"]
    )
    """Requests without an answer: id -> (subtype, function that takes the assumption back)."""
    _request_count: int = 0
    has_skill_shell: bool = True
    """Whether skills may run their shell lines. Once switched off, they stay so in this process."""
    _makes_titles: bool = True
    _asks_shell: bool = False
    """Whether Claude asks before each such line, so that rules hold without the switch."""
    _schema: JsonObject | None = None
    _setup: DirectorySetup = NO_SETUP
    _servers: tuple[McpServer, ...] = ()
    """The MCP servers of the set-up that Claude has."""

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """argv and environment.

        `--allow-dangerously-skip-permissions` chooses no mode: it permits the choice of `bypass` later. As root, the CLI refuses
        to start with it, unless IS_SANDBOX=1. So it is left out if the caller did not say which user runs the server.
        """
        self.mode = wire.NATIVE_MODE.get(options.mode or "", "default")
        self._setup, self._schema = options.setup, options.schema
        self._model, self._variant = options.model or wire.DEFAULT_MODEL, options.variant or ""
        argv = [options.binary, *_FLAGS, f"--permission-mode={self.mode}"]
        if options.environment and (not options.is_root or options.environment.get("IS_SANDBOX") == "1"):
            argv.append("--allow-dangerously-skip-permissions")
        if self._model != wire.DEFAULT_MODEL:
            argv.append(f"--model={self._model}")
        if self._variant:
            argv.append(f"--effort={self._variant}")
        if options.schema is not None:
            argv.append(f"--json-schema={json.dumps(options.schema)}")
        if options.native_session_id:
            argv.append(f"--{'resume' if options.resume else 'session-id'}={options.native_session_id}")
        if options.resume and options.resume_at:  # tried with 2.1.330 and 2.1.197; the fork gets an id of its own
            argv += [f"--resume-session-at={options.resume_at}", "--fork-session"]
        environment = dict(_ENVIRONMENT)
        numbers = tuple(int(part) for part in (options.version or "").partition(" ")[0].split(".") if part.isdecimal())
        self._makes_titles = not numbers or numbers >= _MAKES_TITLES
        self._asks_shell = numbers >= _ASKS_SHELL
        if options.setup.text and numbers >= _FORGETS_TEXT:
            argv.append("--system-prompt-snapshot=off")  # else a conversation that goes on keeps its first instructions
        may_run = options.project_settings and not may_forbid(options.rules, ("bash",))
        self.has_skill_shell = self._asks_shell or may_run
        if not self.has_skill_shell:
            argv.append(f"--settings={json.dumps({SKILL_SHELL: True})}")
        if not options.project_settings:
            # Tried with 2.1.330: no hook, helper or MCP server of the project runs. The added directory is for its CLAUDE.md.
            argv += ["--setting-sources=user", f"--add-dir={options.directory}"]
            environment["CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"] = "1"
        return LaunchSpec(argv=tuple(argv), cwd=options.directory, env=environment)

    # --- requests -------------------------------------------------------------------------------------

    def request(self, request: Msg, undo: Callable[[], None] | None = None) -> Output:
        """Write a control request. `undo` runs if Claude refuses it."""
        self._request_count += 1
        request_id = f"req_{self._request_count}"
        self._waiting[request_id] = (get_text(request, "subtype"), undo)
        return wire.control_request(request_id, request)

    @property
    def is_starting(self) -> bool:
        return any(subtype == "initialize" for subtype, _ in self._waiting.values())

    def handshake(self, hooks: Msg, edit_hooks: Msg) -> Iterator[Output]:
        """Begin the conversation with Claude. Its answer tells what it offers. In: `edit_hooks`, those for formatters.

        MCP servers go over the control channel, so that their secrets are in no argument and in no file. Claude answers when it
        has connected them, and a prompt that comes meanwhile waits for that (2.1.330).
        """
        setup = self._setup
        hooks = {**hooks, **edit_hooks} if setup.has_formatters else hooks
        more: Msg = {"appendSystemPrompt": setup.text} if setup.text else {}
        if setup.subagents:
            more["agents"] = {agent.name: _subagent(agent) for agent in setup.subagents}
        yield self.request({"subtype": "initialize", "hooks": hooks, "forwardSubagentText": True, **more})
        yield from self.change_setup(self._setup)

    def fits(self, prompt: Prompt) -> bool:
        """Whether Claude was started with what a prompt's set-up and schema say. A running one takes no others."""
        setup, ours = prompt.setup, self._setup
        is_same = setup.text == ours.text and setup.subagents == ours.subagents and prompt.schema == self._schema
        return is_same and setup.has_formatters == ours.has_formatters

    def change_setup(self, setup: DirectorySetup) -> Iterator[Output]:
        """Give Claude the MCP servers of a set-up if they have changed. They replace those that it got before."""
        if setup.servers != self._servers:
            servers = {server.name: _server(server) for server in setup.servers}
            yield self.request({"subtype": SET_SERVERS, "servers": servers}, self._undo("_servers"))
            self._servers = setup.servers

    def ask_title(self, text: str) -> Iterator[Output]:
        """Have Claude name its conversation beside the answer. 2.1.197 would do it later, when the turn is over for clients."""
        if self._makes_titles:
            yield self.request({"subtype": TITLE, "description": text[:_TITLE_CHARS], "persist": True})

    def prepare(self) -> Iterator[Output]:
        """Tell Claude that a prompt may come: it uses the time to get the next request ready (2.1.330). An older one refuses."""
        yield self.request({"subtype": _DRAFT})

    def on_preparation(self, subtype: str, refusal: str) -> Iterator[Output]:
        """Handle the answer to a request of `PREPARATION`.

        A summary of the context has Claude put together prompt and tools. It estimates; an older Claude, which does not know
        `detail`, would have the model's API count tokens, and is not asked.
        """
        if subtype == _DRAFT and not refusal:
            yield self.request({"subtype": _CONTEXT, "detail": "summary"})

    def on_answer(self, response: Msg) -> tuple[str, str]:
        """Handle an answer: (subtype, or "" for an unknown request; text of a refusal)."""
        subtype, undo = self._waiting.pop(get_text(response, "request_id"), ("", None))
        if get_text(response, "subtype") != "error":
            if subtype == "initialize":
                self._read(obj(response.get("response")))
            return subtype, ""
        if undo is not None:
            undo()
        return subtype, get_text(response, "error") or f"Claude Code refused {subtype}."

    def changes_for(self, prompt: Prompt) -> Iterator[Output]:
        """Requests for the settings that this prompt changes. Without a model, model and effort stay."""
        yield from self.change_setup(prompt.setup)
        model, variant = prompt.model or self._model, prompt.variant or ""
        if not prompt.model and not variant:
            variant = self._variant
        mode = wire.NATIVE_MODE.get(prompt.mode or "", self.mode)
        if mode != self.mode:
            yield self.request({"subtype": "set_permission_mode", "mode": mode}, self._undo("mode"))
            self.mode = mode
        if model != self._model:
            yield self.request({"subtype": "set_model", "model": model}, self._undo("_model"))
            self._model = model
        if self.has_skill_shell and not self._asks_shell and prompt.rules and may_forbid(prompt.rules, ("bash",)):
            self.has_skill_shell = False
            yield self.request({"subtype": "apply_flag_settings", "settings": {SKILL_SHELL: True}})
        if variant != self._variant:
            settings = {"effortLevel": variant or None}
            yield self.request({"subtype": "apply_flag_settings", "settings": settings}, self._undo("_variant"))
            self._variant = variant

    def _undo(self, attribute: str) -> Callable[[], None]:
        """A function that restores the present value of a setting."""
        before = getattr(self, attribute)
        return lambda: setattr(self, attribute, before)

    def note_mode(self, native: str) -> bool:
        """Note the CLI's mode. True if it changed without our request."""
        if not native or native == self.mode or any(subtype == "set_permission_mode" for subtype, _ in self._waiting.values()):
            return False
        self.mode = native
        return True

    # --- offers ---------------------------------------------------------------------------

    def _read(self, payload: Msg) -> None:
        models, self._resolved = wire.read_models(payload.get("models"))
        default = wire.DEFAULT_MODEL if wire.DEFAULT_MODEL in self._resolved else models[0].id if models else None
        self.catalogue = Catalogue(models, wire.read_commands(payload.get("commands")), default)

    def read_commands(self, msg: Msg) -> int:
        """`commands_changed`: the whole list. Returns the number of commands."""
        commands = wire.read_commands(msg.get("commands"))
        self.catalogue = replace(self.catalogue or wire.DEFAULT_CATALOGUE, commands=commands)
        return len(commands)

    def model_of(self, native: str) -> dict[str, Json]:
        """`metadata.model`. Claude names the model, and the catalogue its aliases; the alias in force comes first."""
        plain = wire.plain_model(native)
        aliases = [alias for alias, model in self._resolved.items() if wire.plain_model(model) == plain]
        model_id = self._model if self._model in aliases else aliases[0] if aliases else native
        return {"provider_id": NAME, "model_id": model_id, "variant": self._variant or None}

    def read_limits(self, result: Msg) -> None:
        """Read the sizes of models, which only results have (`modelUsage`)."""
        usage = obj(result.get("modelUsage"))
        if self.catalogue is None or not usage:
            return
        sizes = {
            wire.plain_model(name): (wire.get_int(obj(row), "contextWindow"), wire.get_int(obj(row), "maxOutputTokens"))
            for name, row in usage.items()
        }
        models = tuple(
            replace(model, context=size[0] or model.context, output=size[1] or model.output)
            if (size := sizes.get(wire.plain_model(self._resolved.get(model.id, model.id))))
            else model
            for model in self.catalogue.models
        )
        if models != self.catalogue.models:
            self.catalogue = replace(self.catalogue, models=models)


def _subagent(agent: ConfigAgent) -> Msg:
    """A subagent as Claude takes it. A model of another provider is left out, so that it gets that of the session."""
    provider, _, model = agent.model.partition("/")
    words = {"description": agent.description or agent.name, "prompt": agent.prompt or agent.description or agent.name}
    return {**words, "model": model} if provider == NAME and model else words


def _server(server: McpServer) -> Msg:
    """An MCP server as Claude takes it. Without `args` it refuses a local one (2.1.330)."""
    limit = {"timeout": server.timeout_ms} if server.timeout_ms else {}
    if server.url:
        return {"type": "http", "url": server.url, "headers": dict(server.headers), **limit}
    program, *words = server.argv
    return {"type": "stdio", "command": program, "args": words, "env": dict(server.environment), **limit}
