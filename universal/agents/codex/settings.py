"""Keeps model, effort and mode in force in one Codex process, and makes the parameters that change them.

The settings of a `turn/start` hold for later turns too, so each prompt sends only changes.
Source: recordings `controls`, `plan_mode`, `resume.2`; the schema of `turn/start`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from universal.agents.codex.wire import DEFAULT_CATALOGUE, DEFAULT_MODE, DEFAULT_MODEL, NAME, PRESETS, Msg, read_models
from universal.codec import Catalogue, Model, Prompt
from universal.items import Json
from universal.launch import LaunchOptions, LaunchSpec
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr
from universal.permissions import BYPASS, PLAN, Rule, may_forbid
from universal.setup import NO_SETUP, DirectorySetup, McpServer

CLIENT: Msg = {
    "clientInfo": {"name": "opencode-shim", "title": "opencode-shim", "version": "1"},
    "capabilities": {"experimentalApi": True, "requestAttestation": False},
}
"""`initialize`. `experimentalApi` is needed for `collaborationMode` and `thread/backgroundTerminals/clean`."""


ASK_ALWAYS = "untrusted"
"""The approval policy under which Codex asks for each command and patch, whatever the sandbox (tried with 0.169.0)."""
_COMMAND_KEYS = ("bash", "read", "list", "glob", "grep", "external_directory", "doom_loop")
"""Permissions that a shell command may need."""


@dataclass(frozen=True, slots=True)
class _Switch:
    """A tool that Codex uses without asking, and the configuration of a thread that is without it.

    permissions  a rule that may forbid one of these switches the tool off
    config       keys of Codex's configuration
    features     names of its `features` that are set to false
    """

    permissions: tuple[str, ...]
    config: Mapping[str, Json] = field(default_factory=dict[str, Json])
    features: tuple[str, ...] = ()


_SWITCHES = (
    _Switch(("websearch",), {"web_search": "disabled"}),
    _Switch(("task",), features=("multi_agent", "multi_agent_v2", "collab")),
    _Switch(("read", "external_directory"), features=("view_image",)),
)


_ANSWERED_ELSEWHERE = frozenset({"webfetch", "websearch", "task", "skill", "todowrite", "question", "plan_enter", "plan_exit"})
"""Permissions that no request of Codex is about."""


def without_unasked_tools(rules: tuple[Rule, ...]) -> Msg:
    """The configuration that switches off tools that a rule may forbid and Codex does not ask about."""
    switches = [switch for switch in _SWITCHES if may_forbid(rules, switch.permissions)]
    config: Msg = {key: value for switch in switches for key, value in switch.config.items()}
    features = {name: False for switch in switches for name in switch.features}
    return {**config, "features": features} if features else config


@dataclass(slots=True)
class Settings:
    """The settings in force in one process."""

    catalogue: Catalogue | None = None
    directory: str = ""
    resume_id: str = ""
    resume_at: str = ""
    """The last turn of the thread to keep; "" keeps all."""
    mode: str = DEFAULT_MODE
    approval: str = ""
    """The approval policy of the thread; "" before it begins."""
    rules: tuple[Rule, ...] = ()
    """The permission rules of the last prompt; before it those of the launch."""
    setup: DirectorySetup = NO_SETUP
    """The person's set-up that the thread began with; before it that of the launch."""
    _tools_off: Msg = field(default_factory=dict[str, Any])
    """The configuration of the thread's start that switched off tools."""
    model: str = ""
    """The model of the thread, as Codex reported it; "" before."""
    effort: str = ""
    configured: str = ""
    """The model of the person's config.toml, or "". It is used if the prompt names none."""
    _own_effort: dict[str, str] = field(default_factory=dict[str, str])
    _rows: list[Json] = field(default_factory=list[Json])
    _wished: tuple[str, str] = ("", "")
    """Model and variant of the last prompt, which messages show."""

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """argv; the thread itself begins with the first prompt."""
        self.directory = options.directory
        self.resume_id = options.native_session_id or "" if options.resume else ""
        self.resume_at = options.resume_at or "" if options.resume else ""
        self.mode = options.mode if options.mode in PRESETS else DEFAULT_MODE
        self.rules, self.setup = options.rules, options.setup
        argv = [options.binary]
        if not options.project_settings:
            # Codex 0.169.0 trusts the directory of a thread by itself, and writes that into the person's config.toml, when the
            # thread may write. A dotted key in `-c` cannot name a path with a dot: so a table.
            argv += ["-c", f'projects={{{json.dumps(options.directory)}={{trust_level="untrusted"}}}}']
        return LaunchSpec(argv=(*argv, "app-server"), cwd=options.directory)

    # --- offers ----------------------------------------------------------------------------

    def read_models(self, result: Msg) -> str:
        """Read a page of `model/list`. Returns the cursor of the next page, or ""."""
        self._rows.extend(arr(result.get("data")))
        cursor = get_text(result, "nextCursor")
        if not cursor or not arr(result.get("data")):
            models, self._own_effort, default = read_models(self._rows)
            if models and self.configured:
                default = self.configured
                if all(model.id != default for model in models):
                    models = (Model(default, default, "As set in Codex's config.toml.", reasoning=True), *models)
            self.catalogue = Catalogue(models, (), default) if models else DEFAULT_CATALOGUE
            return ""
        return cursor

    def read_limits(self, usage: Msg) -> None:
        """Read the context of the thread's model, which only `thread/tokenUsage/updated` has."""
        context = get_int(usage, "modelContextWindow")
        if self.catalogue is None or not context:
            return
        model = self.model or self.catalogue.default_model
        models = tuple(replace(row, context=context) if row.id == model else row for row in self.catalogue.models)
        if models != self.catalogue.models:
            self.catalogue = replace(self.catalogue, models=models)

    # --- the thread -----------------------------------------------------------------------------------

    def thread(self, prompt: Prompt | None) -> tuple[str, Msg]:
        """The request that begins or resumes the conversation: (method, params). Without a prompt, the settings of the launch."""
        if prompt is not None:
            self.mode = prompt.mode if prompt.mode in PRESETS else self.mode
            self.rules, self.setup = prompt.rules, prompt.setup
        preset = PRESETS[self.mode]
        self.approval = self._approval(self.mode)
        self._tools_off = without_unasked_tools(self.rules)
        params: Msg = {"cwd": self.directory, "approvalPolicy": self.approval, "sandbox": preset.sandbox}
        servers = {_server_name(server.name): _server(server) for server in self.setup.servers}
        hidden = [{"path": path, "enabled": False} for path in self.setup.withheld_skills]
        skills: Msg = {"skills": {"config": hidden}} if hidden else {}
        config = {**self._tools_off, **skills, **({"mcp_servers": servers} if servers else {})}
        if config:
            params["config"] = config
        if self.setup.text:
            params["developerInstructions"] = self.setup.text  # a thread that goes on keeps its first ones (0.169.0)
        if prompt is not None and prompt.model and prompt.model != DEFAULT_MODEL:
            params["model"] = prompt.model
        if self.resume_id and self.resume_at:  # a thread of its own; turns keep their ids in it (tried with 0.169.0)
            return "thread/fork", {"threadId": self.resume_id, "lastTurnId": self.resume_at, "excludeTurns": True, **params}
        if self.resume_id:
            return "thread/resume", {"threadId": self.resume_id, "excludeTurns": True, **params}
        return "thread/start", params

    def _approval(self, mode: str) -> str:
        """The approval policy of a mode. If rules may forbid calls that the mode does not ask about, Codex asks about all."""
        keys = _COMMAND_KEYS if mode in (DEFAULT_MODE, PLAN) else (*_COMMAND_KEYS, "edit")
        return ASK_ALWAYS if may_forbid(self.rules, keys) or self._forbids_mcp(mode) else PRESETS[mode].approval

    def _forbids_mcp(self, mode: str) -> bool:
        """Whether a rule may be about an MCP tool, which Codex does not ask about in this mode. Their names are known only
        when they are called, so any rule for a permission that is none of OpenCode's own counts."""
        return PRESETS[mode].approval == "never" and any(
            rule.action != "allow" and rule.permission not in _ANSWERED_ELSEWHERE for rule in self.rules
        )

    def needs_restart(self, prompt: Prompt) -> bool:
        """Whether the rules or the set-up of a prompt need another thread than there is, and so a new process."""
        before, now = ((setup.servers, setup.withheld_skills) for setup in (self.setup, prompt.setup))
        return not self.has_tools_of(prompt.rules) or (bool(self.approval) and before != now)

    def server_name(self, name: str) -> str:
        """The name of an MCP server in the person's set-up, which Codex may have by another name."""
        return next((server.name for server in self.setup.servers if _server_name(server.name) == name), name)

    def has_tools_of(self, rules: tuple[Rule, ...]) -> bool:
        """Whether the thread, if it has begun, has the tools for these rules."""
        return not self.approval or without_unasked_tools(rules) == self._tools_off

    def asks_person(self, tool: str, *, is_escalation: bool, reads_only: bool) -> bool:
        """Whether a request is for a person in this mode, and not only for the rules."""
        if self.mode == BYPASS:
            return False
        if self.approval != ASK_ALWAYS or is_escalation:
            return True
        if tool == "apply_patch":
            return self.mode != "accept-edits"
        return not reads_only

    def on_thread_start(self, result: Msg) -> None:
        """Read the settings in force from the thread's start."""
        self.model = get_text(result, "model")
        self.effort = get_text(result, "reasoningEffort")

    def on_settings_updated(self, settings: Msg) -> None:
        self.model = get_text(settings, "model") or self.model
        self.effort = get_text(settings, "effort", "reasoningEffort") or self.effort

    def turn(self, prompt: Prompt, *, first: bool) -> Msg:
        """The settings that a prompt changes, as parameters of `turn/start`. `first`: the thread has just begun."""
        params: Msg = {}
        model = prompt.model if prompt.model and prompt.model != DEFAULT_MODEL else ""
        effort = prompt.variant or (self._own_effort.get(model, "") if model else "")
        self._wished = (prompt.model or self._wished[0], prompt.variant or "")
        if model and model != self.model:
            params["model"] = self.model = model
        if effort and effort != self.effort:
            params["effort"] = self.effort = effort
        mode = prompt.mode if prompt.mode in PRESETS else self.mode
        preset, before = PRESETS[mode], PRESETS[self.mode]
        self.rules = prompt.rules
        approval = self._approval(mode)
        if approval != self.approval:
            params["approvalPolicy"] = self.approval = approval
        if mode != self.mode:
            params["sandboxPolicy"] = {"type": preset.policy}
        unsure = preset.plan or bool(self.resume_id)  # a thread that goes on may have been left in plan mode
        if self.model and (preset.plan != before.plan or (first and unsure) or (preset.plan and params)):
            settings: Msg = {"model": self.model, "reasoning_effort": self.effort or None, "developer_instructions": None}
            params["collaborationMode"] = {"mode": "plan" if preset.plan else "default", "settings": settings}
        self.mode = mode
        return params

    def model_of(self) -> dict[str, Json]:
        """`metadata.model` of a message that begins now."""
        wished, variant = self._wished
        return {"provider_id": NAME, "model_id": wished or self.model or DEFAULT_MODEL, "variant": variant or None}


def _server_name(name: str) -> str:
    """The name by which Codex takes an MCP server: it refuses any other character (0.169.0)."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _server(server: McpServer) -> Msg:
    """An MCP server as Codex's configuration has it."""
    seconds = (server.timeout_ms or 0) / 1000
    limits = {"startup_timeout_sec": seconds, "tool_timeout_sec": seconds} if seconds else {}
    if server.url:
        return {"url": server.url, "http_headers": dict(server.headers), **limits}
    program, *words = server.argv
    return {"command": program, "args": words, "env": dict(server.environment), **limits}
