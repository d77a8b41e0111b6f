"""Loads agents of other packages by the entry-point group `opencode_shim.agents`.

An entry point names an `AgentSpec`, or a function without arguments that returns one. No such package may stop the server. One
that cannot be loaded is reported (`serve`, `agents`, `doctor`, the log) and left out. A codec that raises ends its process, and
its turn with an error that names the package. docs/adding-an-agent.md says how to write one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import structlog

from shim.lib.errors import AgentStartFailed
from universal.agent_spec import AgentSpec
from universal.codec import Codec, Command, Fact, IdFactory, Output, Signal, Stop
from universal.events import ErrorData, EventType
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.tools import add_tools
from universal.turn import Input

GROUP = "opencode_shim.agents"
NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""A name is a provider id on the wire, and part of `provider/model`."""

FAULT = "agent_codec_failed"
"""Error code of a turn that ended because its codec raised."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point that could not be loaded. `why` is one sentence for the person."""

    entry: str
    package: str
    why: str

    def __str__(self) -> str:
        return f'The agent "{self.entry}" of the package {self.package} is left out: {self.why}'


@dataclass(frozen=True, slots=True)
class Plugins:
    """The agents of installed packages by name, the broken entry points, and the package of each agent by its name."""

    specs: Mapping[str, AgentSpec] = field(default_factory=dict[str, AgentSpec])
    broken: tuple[BrokenPlugin, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict[str, str])


def load(reserved: Collection[str], installed: Iterable[EntryPoint] | None = None) -> Plugins:
    """Load all entry points of the group. `taken`: names that a package may not use. Raises nothing."""
    specs: dict[str, AgentSpec] = {}
    broken: list[BrokenPlugin] = []
    packages: dict[str, str] = {}
    for entry in entry_points(group=GROUP) if installed is None else installed:
        package = entry.dist.name if entry.dist is not None else entry.module
        try:
            spec = _spec(entry.load())
            if spec.name in reserved or spec.name in specs:
                raise _Unusable(f'the name "{spec.name}" is taken. Ask its author for another one')
        except _Unusable as error:
            broken.append(BrokenPlugin(entry.name, package, f"{error}."))
        except (Exception, SystemExit) as error:  # an import may raise anything
            log.warning("plugin.failed", entry=entry.name, package=package, exc_info=True)
            broken.append(
                BrokenPlugin(
                    entry.name,
                    package,
                    f"{entry.value} cannot be loaded ({type(error).__name__}: {error}). Update or remove {package}.",
                )
            )
        else:
            specs[spec.name] = replace(spec, make=partial(_guard, spec.make, package))
            packages[spec.name] = package
            if spec.abilities.tools:
                add_tools(spec.name, spec.abilities.tools)
    return Plugins(specs, tuple(broken), packages)


class _Unusable(Exception):
    """The entry point was loaded and is no valid agent."""


def _spec(value: object) -> AgentSpec:
    spec = value() if callable(value) and not isinstance(value, AgentSpec) else value
    if not isinstance(spec, AgentSpec):
        raise _Unusable(f"it gives a {type(spec).__name__}, not a universal.agent_spec.AgentSpec")
    if not NAME.fullmatch(spec.name):
        raise _Unusable(f'"{spec.name}" cannot be the name of an agent: use small letters, digits, - and _')
    if not spec.abilities.modes:
        raise _Unusable("it has no mode: its AgentSpec needs at least one, `build`")
    return spec


def _guard(make: Callable[[IdFactory], Codec], package: str, ids: IdFactory) -> Codec:
    return GuardedCodec(make(ids), package)


class GuardedCodec(Codec):
    """Wraps the codec of a package: an exception becomes an error of the turn and ends the process. See `Codec`."""

    def __init__(self, inner: Codec, package: str) -> None:
        self._inner = inner
        self._package = package
        self.name = inner.name
        self.catalogue = inner.catalogue
        self.native_session_id = inner.native_session_id

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Name the package in an exception. The caller reports it as a failed start."""
        try:
            return self._inner.launch(options)
        except Exception as error:  # code of another package may raise anything
            raise AgentStartFailed(self._fault("launch", error)) from error

    def start(self) -> list[Output]:
        return self._guard("start", self._inner.start)

    def send(self, command: Command) -> list[Output]:
        return self._guard("send", self._inner.send, command)

    def receive(self, line: bytes) -> list[Output]:
        return self._guard("receive", self._inner.receive, line)

    def eof(self, exit_: Exit) -> list[Output]:
        return self._guard("eof", self._inner.eof, exit_)

    def counters(self) -> Mapping[str, int]:
        return self._inner.counters()

    def _guard(self, method: str, call: Callable[..., list[Output]], *arguments: Any) -> list[Output]:
        outputs: list[Output]
        try:
            outputs = call(*arguments)
        except Exception as error:  # code of another package may raise anything
            log.exception("plugin.codec_failed", agent=self.name, package=self._package, method=method)
            message = self._fault(method, error)
            outputs = [
                Fact(EventType.ERROR, ErrorData(message=message, code=FAULT), synthetic=True),
                Signal(Input.FAILED, error={"message": message, "code": FAULT}),
                Stop(message),
            ]
        self.catalogue, self.native_session_id = self._inner.catalogue, self._inner.native_session_id
        return outputs

    def _fault(self, method: str, error: Exception) -> str:
        return (
            f"The agent {self.name} failed in its {method}() ({type(error).__name__}: {error}). "
            f"That is a fault of the package {self._package}; the server's log tells where."
        )
