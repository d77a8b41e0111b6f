"""The models, efforts, modes and commands that an ACP agent offers, and the requests that set them.

Two generations of the protocol are read: `configOptions` (set by `session/set_config_option`) and `models`/`modes` (set by
`session/set_model`, `session/set_mode`); where an agent has both, the options count. Settings are sent one at a time, each
after the answer to the one before, because the model decides which efforts there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from universal.agents.acp.profiles import DEFAULT, Profile
from universal.agents.acp.wire import Msg
from universal.codec import Catalogue, Mode, Model, Prompt
from universal.items import Json
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.permissions import ACCEPT_EDITS, BYPASS
from universal.slash_commands import SlashCommand

# --- modes ------------------------------------------------------------------------------------------------------

BUILD_ID = "build"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def name_of(native: str) -> str:
    """Return our id of an agent's mode: `autoEdit` -> `auto-edit`, Copilot's `https://.../session-modes#plan` -> `plan`."""
    last = re.split(r"[#/]", native.rstrip("#/"))[-1]
    return "-".join(word.lower() for word in _WORDS.split(last) if word) or native


def offered_modes(
    profile_modes: Sequence[Mode], rows: Sequence[Msg], usual: str, has_option: Callable[[str, str], bool]
) -> tuple[Mode, ...]:
    """Return the modes that a person can choose, `build` first.

    In: `profile_modes`, the first one is `build`; `rows`, what the agent offers, {value | id, name, description};
    `usual`, the mode that it begins in; `has_option(option, value)` for modes of the form `option=value`.
    """
    by_id = {get_text(row, "value", "id"): row for row in rows if get_text(row, "value", "id")}
    first, *rest = profile_modes
    build = next((value for value in by_id if name_of(value) == BUILD_ID), first.native or usual)
    native = first.native or (build if build in by_id else "")
    words = get_text(by_id.get(build, {}), "description")
    modes = {BUILD_ID: Mode(BUILD_ID, words if words and not first.native else first.description, native)}
    for mode in rest:
        option, equals, value = mode.native.partition("=")
        if equals and has_option(option, value):
            modes[mode.id] = mode
    for value, row in by_id.items():
        curated = next((mode for mode in rest if value == mode.native), None)
        curated = curated or next((mode for mode in rest if mode.id == name_of(value)), None)
        if value in (build, modes[BUILD_ID].native):
            continue
        mode = curated or Mode(name_of(value), get_text(row, "description", "name"), value)
        modes.setdefault(mode.id, Mode(mode.id, mode.description, value))
    return tuple(modes.values())


def mode_named(modes: Sequence[Mode], name: str | None) -> Mode | None:
    """Return the mode that a prompt asks for, by our name or the agent's own, or None if there is none."""
    if not name or name == BUILD_ID:
        return modes[0]
    return next((mode for mode in modes if name in (mode.id, mode.native)), None)


# --- models, modes, commands and options ------------------------------------------------------------------------

_NOTHING: Msg = {}
_EFFORT_IDS = ("effort", "reasoning_effort", "thought_level")
_BUILD_WORDS = ("default", "build", "agent", "auto", "code")
"""Ids of the usual mode, the first that exists counts: a resumed session only tells its current mode."""
_BRACKETS = re.compile(r"(.+)\[([a-z]+)\]")
"""A model of codex-acp with its effort: `gpt-5.5[high]`."""


@dataclass(frozen=True, slots=True)
class Change:
    """A request that changes a setting. `setting` is model, variant or `mode:OPTION`."""

    setting: str
    method: str
    params: Msg
    value: str


@dataclass(frozen=True, slots=True)
class MissingChoice:
    """The agent does not offer the value that a prompt asks for."""

    setting: str
    value: str


@dataclass(slots=True)
class Setup:
    """The settings of one session."""

    profile: Profile
    images: bool = False
    options: list[Msg] = field(default_factory=list[Msg])
    modes: list[Msg] = field(default_factory=list[Msg])
    models: list[Msg] = field(default_factory=list[Msg])
    commands: tuple[SlashCommand, ...] | None = None
    logged_in: bool | None = None
    model: str = ""
    variant: str | None = None
    """The effort that the last prompt asked for."""
    mode_now: str = ""
    held_mode: str = ""
    """The mode of a prompt that the agent carries out in `build`, so that it asks: a rule may forbid what it does by itself."""
    _legacy_model: str = ""
    _initial: dict[str, str] = field(default_factory=dict[str, str])

    # --- read -----------------------------------------------------------------------------------------

    def read(self, result: Msg, *, resumed: bool) -> None:
        """Read the result of session/new, session/load or session/resume."""
        self.read_options(result.get("configOptions"))
        modes, models = obj(result.get("modes")), obj(result.get("models"))
        self.modes = [obj(row) for row in arr(modes.get("availableModes"))]
        self.models = [obj(row) for row in arr(models.get("availableModels"))]
        self.mode_now = get_text(modes, "currentModeId") or self._current("mode")
        self._legacy_model = get_text(models, "currentModelId")
        if self.modes and {get_text(row, "id") for row in self.modes} == set(self._values(self._effort())):
            self.modes, self.mode_now = [], ""  # pi-acp: its "modes" are the efforts once more
        self._initial = {get_text(option, "id"): get_text(option, "currentValue") for option in self.options}
        self._initial["mode"] = self.mode_now
        if resumed:
            usual = next((word for word in _BUILD_WORDS if word in self._mode_values()), self.mode_now)
            self._initial["mode"] = usual
        self.model = self._current("model") or self._legacy_model

    def read_options(self, options: Json) -> None:
        """Replace all options by `configOptions`. Anything but a list is ignored."""
        if isinstance(options, list):
            rows = [obj(row) for row in arr(options)]
            self.options = [row for row in rows if get_text(row, "id")]
            if self._option("mode"):
                self.mode_now = self._current("mode")

    def read_commands(self, commands: Json) -> int:
        """Read the commands of `available_commands_update`. Returns how many there are."""
        rows = [obj(row) for row in arr(commands)]
        self.commands = tuple(
            SlashCommand(
                get_text(row, "name").removeprefix("/"), get_text(row, "description"), get_text(obj(row.get("input")), "hint")
            )
            for row in rows
            if get_text(row, "name")
        )
        return len(self.commands)

    def account(self, status: Msg) -> None:
        """Read who is logged in from `authStatus` of `_auth/status_update`: {kind, label}. Kind `none` is nobody."""
        kind = get_text(status, "kind")
        self.logged_in = kind != "none" if kind else self.logged_in

    def mode_id(self) -> str:
        """Return our id of the current mode, or "" if it has none."""
        mode = next((mode.id for mode in self.offered_modes() if mode.native == self.mode_now), "") if self.mode_now else ""
        return self.held_mode if self.held_mode and mode in ("", BUILD_ID) else mode

    def lets_through(self, kind: str) -> bool:
        """Return whether nobody would be asked about a call of this kind if there were no rules, though the agent asks now."""
        return self.held_mode == BYPASS or (self.held_mode == ACCEPT_EDITS and kind == "edit")

    def offered_modes(self) -> tuple[Mode, ...]:
        rows = self._rows(self._option("mode")) or self.modes

        def has(option: str, value: str) -> bool:
            return value in self._values(self._option(option))

        return offered_modes(self.profile.abilities.modes, rows, self._initial.get("mode", ""), has)

    # --- catalogue --------------------------------------------------------------------------------------

    def catalogue(self, agent: Msg) -> Catalogue:
        """Return models with their efforts, commands and modes. `agent` is the agent's answer to `initialize`."""
        efforts = tuple(value for value in self._values(self._effort()) if value != DEFAULT)
        bracketed = self._bracketed_models()
        rows = self._rows(self._option("model"))
        if not rows:
            rows = list(bracketed.values()) if bracketed else [{**row, "value": row.get("modelId")} for row in self.models]
        limits = {get_text(row, "modelId"): get_int(obj(row.get("_meta")), "contextLimit") for row in self.models}
        models: list[Model] = []
        for row in rows:
            id_ = get_text(row, "value")
            if not id_:
                continue
            variants = tuple(arr(bracketed[id_].get("efforts"))) if id_ in bracketed else efforts
            name, about = get_text(row, "name") or id_, get_text(row, "description")
            context = limits.get(id_) or None
            models.append(Model(id_, name, about, variants, reasoning=bool(variants), images=self.images, context=context))
        if not models:
            models.append(Model(DEFAULT, "Default", "The model that the agent is set to.", images=self.images))
        ids = [model.id for model in models]
        current = next((id_ for id_ in (self.model, _BRACKETS.sub(r"\1", self.model)) if id_ in ids), ids[0])
        version = get_text(obj(agent.get("agentInfo")), "version") or None
        return Catalogue(tuple(models), self.commands or (), current, self.offered_modes(), version, self.logged_in)

    def _bracketed_models(self) -> dict[str, Msg]:
        """Return base id -> {value, name, description, efforts} if all models have the form `id[effort]`, else {}."""
        bases: dict[str, Msg] = {}
        for row in self.models:
            match = _BRACKETS.fullmatch(get_text(row, "modelId"))
            if match is None:
                return {}
            name = re.sub(r"\([^()]*+\)\Z", "", get_text(row, "name")).rstrip()
            base = bases.setdefault(match[1], {"value": match[1], "name": name, "description": "", "efforts": []})
            base["efforts"].append(match[2])
        return bases

    # --- set ------------------------------------------------------------------------------------------

    def next(self, prompt: Prompt, session_id: str, tried: set[str]) -> Change | MissingChoice | None:
        """Return the next setting for this prompt, or None when all are as wanted. `tried` are the settings already tried."""
        for setting, change_for in (("model", self._model), ("variant", self._variant), ("mode", self._mode)):
            if setting in tried and setting != "mode":
                continue
            step = change_for(prompt, session_id, tried)
            if step is not None:
                return step
        return None

    def prompt_written(self, prompt: Prompt) -> None:
        """Record the settings with which the prompt is sent."""
        self.model = self._current("model") or self._legacy_model or self.model
        self.variant = prompt.variant

    def _model(self, prompt: Prompt, session_id: str, tried: set[str]) -> Change | MissingChoice | None:
        model_id = prompt.model
        if not model_id or model_id == DEFAULT:
            return None
        option = self._option("model")
        if option:
            return self._set("model", option, model_id, session_id)
        if not self.models:
            return None
        if self._bracketed_models():
            efforts = arr(obj(self._bracketed_models().get(model_id)).get("efforts"))
            now = _BRACKETS.fullmatch(self._legacy_model)
            effort = prompt.variant or (now[2] if now and now[2] in efforts else next(iter(efforts), ""))
            model_id = f"{model_id}[{effort}]"
        if model_id == self._legacy_model:
            return None
        if model_id not in [get_text(row, "modelId") for row in self.models]:
            return MissingChoice("model", prompt.model or "")
        self._legacy_model = model_id
        return Change("model", "session/set_model", {"sessionId": session_id, "modelId": model_id}, model_id)

    def _variant(self, prompt: Prompt, session_id: str, tried: set[str]) -> Change | MissingChoice | None:
        option = self._effort()
        if not option:
            return MissingChoice("variant", prompt.variant) if prompt.variant and not self._bracketed_models() else None
        if prompt.variant:
            return self._set("variant", option, prompt.variant, session_id)
        usual = self._initial.get(get_text(option, "id"), "")
        if self.variant and usual in self._values(option):  # back from an effort that was asked for before
            return self._set("variant", option, usual, session_id)
        return None

    def _mode(self, prompt: Prompt, session_id: str, tried: set[str]) -> Change | MissingChoice | None:
        """Set each option that any mode uses: to its value in this mode, or to its initial value."""
        modes = self.offered_modes()
        mode = mode_named(modes, prompt.mode)
        if mode is None:
            return MissingChoice("mode", prompt.mode or "")
        may_forbid = any(rule.action != "allow" for rule in prompt.rules)
        is_held = mode.id in (ACCEPT_EDITS, BYPASS) and may_forbid and not self.profile.asks_always
        self.held_mode, mode = (mode.id, modes[0]) if is_held else ("", mode)
        settings = _settings(mode)
        for name in dict.fromkeys(["mode", *(key for m in modes for key in _settings(m))]):
            value = settings.get(name) or self._initial.get(name, "")
            key = f"mode:{name}"
            if not value or key in tried:
                continue
            option = self._option("mode") if name == "mode" else self._option(name)
            if option:
                step = self._set(key, option, value, session_id)
            elif name == "mode" and value in self._mode_values():
                params = {"sessionId": session_id, "modeId": value}
                step = Change(key, "session/set_mode", params, value) if value != self.mode_now else None
            else:
                step = MissingChoice("mode", mode.id) if name in settings else None
            if isinstance(step, MissingChoice) and name not in settings:
                step = None
            if step is not None:
                return step
        return None

    def _set(self, setting: str, option: Msg, value: str, session_id: str) -> Change | MissingChoice | None:
        if get_text(option, "currentValue") == value:
            return None
        if value not in self._values(option):
            return MissingChoice(setting.partition(":")[0], value)
        params: Msg = {"sessionId": session_id, "configId": get_text(option, "id"), "value": value}
        return Change(setting, "session/set_config_option", params, value)

    def note_change(self, change: Change, result: Msg) -> None:
        config = change.params.get("configId")
        value: Msg = {"currentValue": change.value}  # in a new option: the journal keeps the agent's own line
        self.options = [{**option, **(value if option.get("id") == config else {})} for option in self.options]
        if change.method == "session/set_mode":
            self.mode_now = change.value
        self.read_options(result.get("configOptions"))
        if config is not None and self._option("mode"):
            self.mode_now = self._current("mode")

    # --- options --------------------------------------------------------------------------------------

    def _option(self, kind: str) -> Msg:
        """Return the option with this id, else the first of this category, else {}."""
        by_id = next((option for option in self.options if option.get("id") == kind), None)
        return by_id or next((option for option in self.options if option.get("category") == kind), _NOTHING)

    def _effort(self) -> Msg:
        by_id = next((option for option in self.options if option.get("id") in _EFFORT_IDS), None)
        return by_id or self._option("thought_level")

    def _current(self, kind: str) -> str:
        return get_text(self._option(kind), "currentValue")

    def _rows(self, option: Msg) -> list[Msg]:
        """Return the choices of an option. A group is replaced by its choices."""
        rows: list[Msg] = []
        for row in map(obj, arr(option.get("options"))):
            inner = [obj(item) for item in arr(row.get("options"))]
            rows.extend(inner or [row])
        return rows

    def _values(self, option: Msg) -> list[str]:
        return [value for value in (get_text(row, "value") for row in self._rows(option)) if value]

    def _mode_values(self) -> list[str]:
        return self._values(self._option("mode")) or [get_text(row, "id") for row in self.modes]


def _settings(mode: Mode) -> dict[str, str]:
    """Return the options that a mode sets: `plan` -> {mode: plan}, `option=x` -> {option: x}, "" -> {}."""
    name, equals, value = mode.native.partition("=")
    return {name: value} if equals and "/" not in name else {"mode": mode.native} if mode.native else {}
