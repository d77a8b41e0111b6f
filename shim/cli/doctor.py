"""`opencode-shim doctor`: each agent found or not, its version, its login, and with `--probe` a real prompt, timed.

The same application as `serve` runs inside, on a store in memory: nothing is kept. Every wait is bounded.
What is found out is judged by `shim.cli.diagnosis`; this module asks, and shows.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from aiohttp import web

from shim.agents.directory import Agent, AgentDirectory
from shim.app import SERVICES, build_app
from shim.cli import screen
from shim.cli.diagnosis import AgentCheck, Diagnosis, Login, Probe, diagnose
from shim.cli.probe import private, probe
from shim.errors import AgentError, ShimError
from shim.runtime.ask import ask
from shim.settings import Settings
from shim.store.memory import MemoryStore
from universal.codec import PERMISSION_KEYS, AgentSpec, LoginCheck

TELL_WAIT_S = 120.0
"""For all agents to tell what they offer, two at a time, each within the discovery's own 20 s."""
LOGIN_WAIT_S = 20.0
"""For one agent to tell whether it is logged in. Usually 0.2 to 2 s; some ask their server."""
MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "wrong": ("WRONG", "bold red"), "absent": ("-", "dim")}


async def examine(settings: Settings, named: Sequence[str], *, probing: bool) -> list[Diagnosis]:
    """All agents, or the named ones. Raises: ShimError for a name that nobody knows."""
    own = private(settings)
    runner = web.AppRunner(build_app(own, store=MemoryStore()), access_log=None)
    try:
        await runner.setup()
        services = runner.app[SERVICES]
        directory = services.agents
        unknown = [name for name in named if directory.get(name) is None]
        if unknown:
            known = ", ".join(agent.spec.name for agent in directory.all())
            raise ShimError(f'There is no agent named "{unknown[0]}". Known: {known}.')
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_WAIT_S):
                await directory.settle()
        found: list[AgentCheck] = []
        for agent in directory.all():
            if not named or agent.spec.name in named:
                found.append(await _check_agent(agent, directory.environment()))
        if not named:
            found += [AgentCheck(b.entry, b.package, why=str(b), broken_package=True) for b in directory.broken]
        if probing:
            found = [await _probe_agent(runner, own, directory, checked, named) for checked in found]
        return [diagnose(checked) for checked in found]
    finally:
        await runner.cleanup()


async def _check_agent(agent: Agent, environ: Mapping[str, str]) -> AgentCheck:
    spec, located = agent.spec, agent.located
    login, note = await _login(agent, environ) if agent.usable else ("unknown", "")
    return AgentCheck(
        name=spec.name,
        title=spec.title,
        path=located.path,
        version=located.version,
        why=located.why,
        built_in=not spec.binaries,
        tested=spec.tested,
        login=login,
        login_note=note,
        login_hint=spec.login_hint,
        models=len(agent.catalogue.models) if agent.usable and not agent.trouble else 0,
        trouble=agent.trouble,
        rules_by=spec.enforcement.by,
        rules_missing=tuple(key for key in PERMISSION_KEYS if spec.enforcement.gap(key)),
    )


async def _login(agent: Agent, environ: Mapping[str, str]) -> tuple[Login, str]:
    """(answer, how it was learned)."""
    if agent.logged_out:
        return "no", "it said so when it was asked for a session"
    if agent.catalogue.logged_in is not None and not agent.trouble:
        return ("yes" if agent.catalogue.logged_in else "no"), "it said so when it was asked for a session"
    match agent.spec.login:
        case LoginCheck() as check if agent.located.path is not None:
            return await _check_login(agent.spec, check, agent.located.path, environ)
        case "session" if not agent.trouble:
            return "yes", "it made a session"
        case "models" if not agent.trouble:
            theirs = [model for model in agent.catalogue.models if model not in agent.spec.default_catalogue.models]
            return ("yes", f"it offers {len(theirs)} models") if theirs else ("no", "it offers no model")
        case _:
            return "unknown", ""


async def _check_login(spec: AgentSpec, check: LoginCheck, path: str, environ: Mapping[str, str]) -> tuple[Login, str]:
    command = f"`{' '.join((spec.binaries[0], *check.args))}`"

    def tells_login(line: str) -> bool:
        return bool(re.search(check.yes, line) or re.search(check.no, line))

    try:
        said = await ask((path, *check.args), environ, wait_s=LOGIN_WAIT_S, lines=check.lines, enough=tells_login)
    except AgentError as error:
        return "unknown", f"{command}: {error}"
    if re.search(check.yes, said.text):
        return "yes", command
    if re.search(check.no, said.text):
        return "no", command
    return "unknown", f"{command} did not tell" + ("" if said.over else f" within {LOGIN_WAIT_S:g} s")


async def _probe_agent(
    runner: web.AppRunner, settings: Settings, directory: AgentDirectory, checked: AgentCheck, named: Sequence[str]
) -> AgentCheck:
    """With a probe, where one makes sense: not of what is absent, and of the built-in mock only when it is asked for."""
    agent = directory.get(checked.name)
    if agent is None or checked.why or (checked.built_in and checked.name not in named):
        return checked
    catalogue = agent.catalogue
    model = catalogue.default_model or (catalogue.models[0].id if catalogue.models else "")
    if not model:
        return replace(
            checked, probe=Probe(error=f"It offers no model, so there is nothing to ask. {checked.login_hint}".strip())
        )
    clock = runner.app[SERVICES].clock
    return replace(checked, probe=await probe(runner, settings, checked.name, model, clock))


# --- shown -----------------------------------------------------------------------------------------------


def show(out: screen.Console, found: Sequence[Diagnosis]) -> None:
    """A block per agent that is there, a line for those that are not."""
    for one in found:
        checked = one.checked
        if one.status == "absent":
            continue
        word, style = MARKS[one.status]
        screen.line(out, f"{checked.name}: {word}", style)
        for label, value in _facts(one):
            screen.line(out, f"  {label:<8} {value}")
        if one.remedy:
            remedy = " ".join(one.remedy.split())
            screen.line(out, f"  {'do' if one.status == 'wrong' else 'note':<8} {remedy}", style)
    absent = [one for one in found if one.status == "absent"]
    for one in absent if len(absent) == len(found) else []:
        screen.line(out, f"{one.checked.name}: not installed. {one.remedy}")
    if absent and len(absent) < len(found):
        screen.line(out, f"not installed: {', '.join(one.checked.name for one in absent)}", "dim")


def _facts(one: Diagnosis) -> list[tuple[str, str]]:
    checked, probe_ = one.checked, one.checked.probe
    if checked.broken_package:
        return []
    tested = {"inside": "tested", "newer": "newer than tested", "older": "older than tested"}.get(one.tested, "")
    rows = [
        ("found", checked.path or screen.BUILT_IN),
        ("version", f"{checked.version or 'not told'}{f' ({tested})' if tested else ''}"),
        ("login", f"{checked.login}{f' ({checked.login_note})' if checked.login_note else ''}"),
        ("models", str(checked.models or "not told")),
    ]
    if checked.built_in:
        del rows[1:3]
    elif checked.rules_by:
        held = "" if not checked.rules_missing else f"; not held for {', '.join(checked.rules_missing)}"
        rows.append(("rules", f"{checked.rules_by}{held}"))
    if checked.trouble and one.remedy != checked.trouble:
        rows.append(("trouble", " ".join(checked.trouble.split())))
    if probe_ is not None:
        times = {
            "process": probe_.started_ms,
            "first event": probe_.event_ms,
            "first text": probe_.text_ms,
            "idle": probe_.idle_ms,
        }
        shown = ", ".join(f"{name} {ms / 1000:.1f} s" for name, ms in times.items() if ms is not None)
        rows.append(("probe", f"{'answered' if probe_.good else 'FAILED'}{f': {shown}' if shown else ''}"))
        if probe_.answer:
            rows.append(("said", probe_.answer.partition("\n")[0][:100]))
    return rows


def as_json(found: Sequence[Diagnosis]) -> str:
    """A list of objects: what was found out (`Checked`), `status`, `tested_range`, `remedy`."""
    rows = [asdict(one.checked) | {"status": one.status, "version_is": one.tested, "remedy": one.remedy} for one in found]
    return json.dumps(rows, indent=2)
