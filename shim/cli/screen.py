"""Prints lines and tables: coloured on a terminal, elsewhere without escape sequences and line breaks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from shim.lib.settings import Settings, env_name

if TYPE_CHECKING:
    from shim.cli.server import RunningServer

BUILT_IN = "built in"
"""Shown instead of a path for an agent that has no program of its own."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
FORCE_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that ask for colours without a terminal."""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent in the lists. `where` is its path, or `built in`.

    problem   why the agent cannot be used, or None
    absent    True if the agent is not installed; `install` then says how to
    models    those that the agent reported; none if it has not answered yet
    trouble   why the agent did not report what it offers, or None; it may still work
    """

    name: str
    title: str
    version: str | None
    where: str | None
    problem: str | None
    trouble: str | None = None
    is_default: bool = False
    models: tuple[str, ...] = ()
    default_model: str | None = None
    capabilities: Mapping[str, bool] | None = None
    absent: bool = False
    install: str = ""


@dataclass(slots=True)
class Table:
    """Rows of cells below their titles. Styles are those of rich: `dim`, `bold`, `yellow`."""

    titles: tuple[str, ...]
    rows: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list[tuple[tuple[str, ...], str | None]])

    def add(self, *cells: str, style: str | None = None) -> None:
        self.rows.append((cells, style))


class Console(Protocol):
    """An output for lines and tables."""

    def line(self, text: str, style: str | None) -> None:
        """Print one line without wrapping it, since people copy it and programs parse it. Brackets are no markup."""
        ...

    def table(self, table: Table) -> None: ...


class Plain:
    """Output without a terminal. Scripts read it, so it wraps and colours nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str, style: str | None) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def table(self, table: Table) -> None:
        lines = [table.titles, *(cells for cells, _ in table.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for cells in lines:
            self.line("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(), None)


class Terminal:
    """Output to a terminal by rich, which reads NO_COLOR and the width itself.

    rich is imported only here: the import takes a tenth of the start.
    """

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._out = Console(file=stream, highlight=False)

    def line(self, text: str, style: str | None) -> None:
        self._out.print(text, style=style, markup=False, soft_wrap=True)

    def table(self, table: Table) -> None:
        from rich.markup import escape
        from rich.table import Table as RichTable

        rich_table = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for title in table.titles:
            rich_table.add_column(title, overflow="fold")
        for cells, style in table.rows:
            rich_table.add_row(*map(escape, cells), style=style)
        self._out.print(rich_table)


def console(stream: TextIO) -> Console:
    """Return the output for stdout or stderr."""
    return Terminal(stream) if stream.isatty() or any(map(os.environ.get, FORCE_VARIABLES)) else Plain(stream)


def line(out: Console, text: str, style: str | None = None) -> None:
    """Print one line (see `Console.line`)."""
    out.line(text, style)


def print_listening_line(out: Console, running: RunningServer) -> None:
    """Print the line that OpenCode's server prints. The SDK's `createOpencodeServer` and scripts wait for it."""
    line(out, f"opencode server listening on {running.url}")


def print_start(out: Console, running: RunningServer, rows: Sequence[AgentRow], warnings: Iterable[str] = ()) -> None:
    """Print, after the start, the agents, how to attach, where the data is, and the warnings."""
    from shim.cli.clients import attach_line  # late: no other command needs it

    settings = running.settings
    line(out, "")
    agent_table(out, [row for row in rows if not row.absent])
    if absent := ", ".join(row.name for row in rows if row.absent):
        line(out, f"not installed: {absent} (`opencode-shim agents` says how to install them)", "dim")
    line(out, "")
    line(out, f"attach   {attach_line(running.url, settings.directory)}", "bold")
    line(out, f"inspect  {running.url}/inspector")
    line(out, f"default  {', '.join(row.name for row in rows if row.is_default)}, for prompts that name no model")
    line(out, f"access   {_access(settings)}")
    line(out, f"data     {settings.data_dir}")
    if settings.has_cluster:
        line(out, f"cluster  {settings.cluster}, prefix {settings.cluster_prefix}")
    for path, names in _from_files(settings).items():
        line(out, f"settings {', '.join(names)} from {path}")
    for warning in warnings:
        line(out, f"note     {warning}", "yellow")


def notes(settings: Settings, rows: Sequence[AgentRow]) -> list[str]:
    """Return notes that correct wrong expectations: no agent, password without TLS, recorded traffic."""
    messages: list[str] = []
    if not any(row.problem is None and row.where != BUILT_IN for row in rows):
        messages.append("No agent is installed, so prompts go to the built-in mock. Send it `help` to see what it can play.")
    messages += [row.trouble for row in rows if row.trouble and not row.problem]
    if settings.password is not None and settings.tls_cert is None and settings.hostname not in LOOPBACK:
        messages.append(
            "Without --tls-cert, anyone who listens in on the network reads the password. Behind a proxy with TLS that is fine."
        )
    if settings.record_dir is not None:
        messages.append(f"All traffic with agents, prompts included, is recorded in {settings.record_dir}.")
    return messages


def _access(settings: Settings) -> str:
    if settings.password is None:
        return "every program on this machine; OPENCODE_SERVER_PASSWORD sets a password"
    return f"user {settings.username}, with a password; clients take it from OPENCODE_SERVER_PASSWORD"


def _from_files(settings: Settings) -> dict[str, list[str]]:
    """Return path -> names of the settings in that file. The person must notice a settings file of an unknown checkout."""
    files: dict[str, list[str]] = {}
    for name, source in settings.sources().items():
        if source.startswith("file "):
            files.setdefault(source.removeprefix("file "), []).append(name)
    return files


def agent_table(out: Console, rows: Sequence[AgentRow]) -> None:
    """Print name, version, and path or problem of each agent."""
    table = Table(("agent", "version", "where"))
    for row in rows:
        style = "dim" if row.problem else None
        where = f"not usable: {row.problem}" if row.problem else row.where or ""
        table.add(row.name, row.version or "-", where, style=style)
    out.table(table)


def agent_details(out: Console, rows: Sequence[AgentRow]) -> None:
    """Print the table, for each usable agent its models and capabilities, and how to install those that are absent."""
    agent_table(out, [row for row in rows if not row.absent])
    for row in rows:
        if row.problem is None:
            line(out, "")
            line(out, f"{row.name}: {row.title}", "bold")
            models = [f"{model} (default)" if model == row.default_model else model for model in row.models]
            line(out, f"  models  {', '.join(models) or 'unknown: it did not answer in time'}")
            if row.trouble:
                line(out, f"  note    {row.trouble}", "yellow")
            line(out, f"  can     {', '.join(name for name, can in (row.capabilities or {}).items() if can) or '-'}")
    if absent := [row for row in rows if row.absent]:
        line(out, "")
        table = Table(("not installed", "how to install it"))
        for row in absent:
            table.add(row.name, row.install)
        out.table(table)


def agents_json(rows: Sequence[AgentRow]) -> str:
    """Return a JSON list of objects with the fields of `AgentRow`."""
    return json.dumps([asdict(row) for row in rows], indent=2)


def settings_table(out: Console, settings: Settings, *, all_of_them: bool = False) -> None:
    """Print name, value and source of each setting that somebody has set, and of the others only if all are wanted."""
    sources = sorted(settings.sources().items(), key=lambda item: item[1] == "default")
    rows = [(name, source) for name, source in sources if all_of_them or source != "default"]
    table = Table(("setting", "value", "from"))
    for name, source in rows:
        table.add(name, _display(getattr(settings, name)), source)
    if rows:
        out.table(table)
    if rest := len(sources) - len(rows):
        line(out, f"{rest} settings have their defaults: opencode-shim config --all", "dim")


def settings_json(settings: Settings) -> str:
    """Return the settings as JSON: name -> {value, source, env, description}."""
    values = settings.model_dump(mode="json")
    fields = type(settings).model_fields
    return json.dumps(
        {
            name: {"value": values[name], "source": source, "env": env_name(name), "description": fields[name].description}
            for name, source in settings.sources().items()
        },
        indent=2,
    )


def _display(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value) or "-"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - a tuple of anything
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(str(key) for key in value) or "-"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - names only
    return "-" if value is None else str(value)
