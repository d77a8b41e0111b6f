"""`opencode-shim doctor`: checks each agent's installation, version and login, and with `--probe` times a real prompt.

It runs the same application as `serve` on a memory store, so it keeps nothing. Every wait is bounded. This module collects
the facts and prints them; `shim.cli.diagnosis` judges them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from aiohttp import ClientError, web
from pydantic import SecretStr

from shim.agents import sandboxes
from shim.agents.directory import Agent, AgentDirectory
from shim.cli import screen
from shim.cli.diagnosis import AgentCheck, Diagnosis, Login, Probe, diagnose
from shim.client import Client, Problem
from shim.host.config.opencode_config import ConfigFiles
from shim.host.config.setups import Setups
from shim.host.plugins.plugin_hosts import find_files
from shim.lib.clock import Clock
from shim.lib.errors import AgentError, ShimError
from shim.lib.settings import Settings
from shim.lib.tasks import wait_at_most
from shim.main.app import SERVICES, build_app, find_agents
from shim.processes.answers import ask
from shim.store.memory import MemoryStore
from universal.agent_spec import AgentSpec, LoginCheck
from universal.events import ErrorData, ItemData, ItemDeltaData, TurnData
from universal.items import ItemRole
from universal.lib.jsonvalue import obj, text
from universal.permissions import PERMISSION_KEYS
from universal.sandbox import TIGHTER, SandboxUse
from universal.setup import PARTS, DirectorySetup

# --- a prompt through the whole chain ---------------------------------------------------------------------------

PROMPT = "Answer with the single word: ready. Use no tools."
PROBE_S = 90.0
"""Seconds for one agent from the prompt to idle. A first answer takes 3 to 20 s; some agents retry a failing model for 60 s."""
USER = "opencode"
OTHER_HOOKS = "hooks of your plugins ({names}) that docs/plugins.md does not name as called"
"""What is said of plugins, which are not loaded for it."""


def private(settings: Settings) -> Settings:
    """Return the person's settings, changed for a server that only this process can use."""
    password = SecretStr(secrets.token_urlsafe())
    changes = {"web_ui": False, "base_path": "", "username": USER, "password": password, "tls_cert": None, "tls_key": None}
    return settings.model_copy(update=changes)


async def probe(runner: web.AppRunner, settings: Settings, agent: str, model: str, clock: Clock) -> Probe:
    """Send one prompt to one agent. Bounded; a failure is reported in `Probe.error`."""
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[-1][:2]
    password = settings.password.get_secret_value() if settings.password is not None else None
    try:
        with tempfile.TemporaryDirectory(prefix="opencode-shim-doctor-") as folder:
            async with Client(f"http://{host}:{port}", password=password) as client:
                return await _turn(client, runner.app[SERVICES].agents, folder, clock, agent, model)
    finally:
        await site.stop()


async def _turn(client: Client, agents: AgentDirectory, folder: str, clock: Clock, agent: str, model: str) -> Probe:
    """Run one turn in a new session and measure its times. What the agent asks for is rejected."""
    fields: dict[str, Any] = {}
    texts: list[str] = []
    began = 0

    def mark(name: str) -> None:
        fields.setdefault(name, clock.now_ms() - began)

    agents.listeners.spawned = lambda name: mark("started_ms") if name == agent else None
    try:
        async with asyncio.timeout(PROBE_S):
            session = await client.create_session(agent=agent, directory=folder, model=model, title="doctor", unattended="rules")
            began = clock.now_ms()
            async for event in session.prompt(PROMPT):
                match event.data:
                    case ItemData(item=item) if item.role is ItemRole.ASSISTANT:
                        mark("event_ms")
                    case ItemDeltaData(part_type="text", delta=delta):
                        mark("text_ms")
                        texts.append(delta)
                    case ErrorData(message=message):
                        fields["error"] = message
                    case TurnData(phase="ended", metadata=metadata):
                        mark("idle_ms")
                        if failure := text(obj(obj(metadata).get("error")).get("message")):
                            fields.setdefault("error", failure)
                    case _:
                        pass
            await session.terminate()
    except TimeoutError:
        fields.setdefault("error", f"It did not become idle within {PROBE_S:g} s.")
    except (ClientError, OSError, Problem) as error:
        fields.setdefault("error", f"The server failed: {error}")
    finally:
        agents.listeners.spawned = lambda name: None
    return Probe(**fields, answer="".join(texts).strip())


# --- `opencode-shim doctor` -----------------------------------------------------------------------------------

TELL_WAIT_S = 120.0
"""Seconds for all agents to report what they offer. Two run at a time, each within the discovery's own 20 s."""
LOGIN_WAIT_S = 20.0
"""Seconds for one agent to report whether it is logged in. Usual: 0.2 to 2 s; some agents ask their server."""
MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "wrong": ("problem", "bold red"), "absent": ("-", "dim")}


async def examine(settings: Settings, named: Sequence[str], *, probing: bool) -> list[Diagnosis]:
    """Check all agents, or the named ones. Raises ShimError for an unknown name."""
    settings_of_probe = private(settings)
    runner = web.AppRunner(build_app(settings_of_probe, store=MemoryStore()), access_log=None)
    try:
        await runner.setup()
        directory = await find_agents(runner.app)
        unknown = [name for name in named if directory.get(name) is None]
        if unknown:
            names = ", ".join(agent.spec.name for agent in directory.list_agents())
            raise ShimError(f'There is no agent named "{unknown[0]}". Known: {names}.')
        asked = asyncio.gather(*(directory.offer(name, TELL_WAIT_S) for name in named)) if named else directory.settle()
        await wait_at_most(asked, TELL_WAIT_S)
        wanted = [agent for agent in directory.list_agents() if not named or agent.spec.name in named]
        here = str(settings.directory)
        files = ConfigFiles(Path.home(), os.environ, tuple(map(str, settings.roots)))
        config = await asyncio.to_thread(files.load, here)
        setups = Setups(lambda _: config)
        setup, idle = setups.now(here, with_project=True), [*setups.idle(here, with_project=True)]
        idle += [f"`agent.{row.name}.{key}`" for row in config.agents.values() for key in row.idle]
        _, plugins = await asyncio.to_thread(find_files, here, files.folder, config)
        idle += [OTHER_HOOKS.format(names=", ".join(Path(name).name for name, _ in plugins.plugins))] if plugins.plugins else []
        checks = list(await asyncio.gather(*(_check_agent(agent, directory.environment(), setup, idle) for agent in wanted)))
        if not named:
            checks += [AgentCheck(b.entry, b.package, why=str(b), broken_package=True) for b in directory.broken]
        if probing:
            checks = [await _probe_agent(runner, settings_of_probe, directory, checked, named) for checked in checks]
        return [diagnose(checked) for checked in checks]
    finally:
        await runner.cleanup()


async def _check_agent(agent: Agent, environ: Mapping[str, str], setup: DirectorySetup, idle: Sequence[str]) -> AgentCheck:
    """In: `idle`, what of the set-up acts with OpenCode as the agent alone."""
    spec, located = agent.spec, agent.located
    login, note = await _login(agent, environ) if agent.usable else ("unknown", "")
    tool = await asyncio.to_thread(sandboxes.tool, environ)
    return AgentCheck(
        name=spec.name,
        title=spec.title,
        path=located.path,
        version=located.version,
        why=located.why,
        refused=bool(located.why) and not located.absent,
        built_in=not spec.program.binaries,
        tested=spec.program.tested,
        login=login,
        login_note=note,
        login_hint=spec.program.login_hint,
        models=len(agent.catalogue.models) if agent.usable and not agent.trouble else 0,
        trouble=agent.trouble,
        slow=agent.slow,
        rules_by=spec.rules.enforcement.by,
        rules_missing=tuple(key for key in PERMISSION_KEYS if spec.rules.enforcement.gap(key)),
        sandbox=_sandbox_words(spec.rules.sandbox, tool),
        sandbox_why=tool.why if spec.rules.sandbox.level in TIGHTER and spec.program.binaries else "",
        setup_missing=(
            *(PARTS[part] for part in spec.abilities.setup.gaps(setup)),
            *(() if spec.abilities.setup.reads_own else idle),
        ),
    )


def _sandbox_words(use: SandboxUse, tool: sandboxes.Tool) -> str:
    """The level, and what the kernel holds, or whether it could."""
    if use.level not in TIGHTER:
        return f"{use.level}; this machine can make none" if tool.why else f"{use.level}; {tool.kind} works here"
    if tool.why:
        return f"{use.level}; not here"
    return f"{use.level}; by {tool.kind} the kernel holds denies of {', '.join(use.shown) or 'nothing yet'}"


async def _login(agent: Agent, environ: Mapping[str, str]) -> tuple[Login, str]:
    """Return whether the agent is logged in, and how that was found out."""
    if agent.logged_out:
        return "no", "it said so when asked for a session"
    if agent.catalogue.logged_in is not None and not agent.trouble:
        return ("yes" if agent.catalogue.logged_in else "no"), "it said so when asked for a session"
    match agent.spec.program.login:
        case LoginCheck() as check if agent.located.path is not None:
            return await _check_login(agent.spec, check, agent.located.path, environ)
        case "session" if not agent.trouble:
            return "yes", "it made a session"
        case "models" if not agent.trouble:
            reported = [model for model in agent.catalogue.models if model not in agent.spec.abilities.catalogue.models]
            return ("yes", f"it offers {len(reported)} models") if reported else ("no", "it offers no model")
        case _:
            return "unknown", ""


async def _check_login(spec: AgentSpec, check: LoginCheck, path: str, environ: Mapping[str, str]) -> tuple[Login, str]:
    command = f"`{' '.join((spec.program.binaries[0], *check.args))}`"

    def tells_login(line: str) -> bool:
        return bool(re.search(check.yes, line) or re.search(check.no, line))

    try:
        output = await ask((path, *check.args), environ, wait_s=LOGIN_WAIT_S, lines=check.lines, enough=tells_login)
    except AgentError as error:
        return "unknown", f"{command}: {error}"
    if re.search(check.yes, output.text):
        return "yes", command
    if re.search(check.no, output.text):
        return "no", command
    return "unknown", f"{command} did not say" + ("" if output.over else f" within {LOGIN_WAIT_S:g} s")


async def _probe_agent(
    runner: web.AppRunner, settings: Settings, directory: AgentDirectory, checked: AgentCheck, named: Sequence[str]
) -> AgentCheck:
    """Add a probe to the facts. An absent agent is not probed, and the built-in mock only if the person named it."""
    agent = directory.get(checked.name)
    if agent is None or checked.why or (checked.built_in and checked.name not in named):
        return checked
    catalogue = agent.catalogue
    model = catalogue.default_model or (catalogue.models[0].id if catalogue.models else "")
    if not model:
        return replace(checked, probe=Probe(error=f"It offers no model, so no prompt can be sent. {checked.login_hint}".strip()))
    clock = runner.app[SERVICES].clock
    return replace(checked, probe=await probe(runner, settings, checked.name, model, clock))


# --- output ----------------------------------------------------------------------------------------------


def show(out: screen.Console, diagnoses: Sequence[Diagnosis]) -> None:
    """Print a block for each installed agent, a line for each that is refused, and one line with the absent ones."""
    for diagnosis in diagnoses:
        checked = diagnosis.checked
        if diagnosis.status == "absent":
            continue
        word, style = MARKS[diagnosis.status]
        screen.line(out, f"{checked.name}: {word}", style)
        for label, value in _facts(diagnosis):
            screen.line(out, f"  {label:<8} {value}")
        if diagnosis.remedy:
            remedy = " ".join(diagnosis.remedy.split())
            screen.line(out, f"  {'do' if diagnosis.status == 'wrong' else 'note':<8} {remedy}", style)
    absent = [diagnosis for diagnosis in diagnoses if diagnosis.status == "absent"]
    missing = [diagnosis.checked.name for diagnosis in absent if not diagnosis.checked.refused]
    for diagnosis in absent:
        if diagnosis.checked.refused:
            screen.line(out, f"{diagnosis.checked.name}: not used. {diagnosis.remedy}")
        elif len(missing) == len(diagnoses):
            screen.line(out, f"{diagnosis.checked.name}: not installed. {diagnosis.remedy}")
    if missing and len(missing) < len(diagnoses):
        screen.line(out, f"not installed: {', '.join(missing)}", "dim")


def _facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    checked, probe_ = diagnosis.checked, diagnosis.checked.probe
    if checked.broken_package:
        return []
    tested = {"inside": "tested", "newer": "newer than tested", "older": "older than tested"}.get(diagnosis.tested, "")
    rows = [
        ("found", checked.path or screen.BUILT_IN),
        ("version", f"{checked.version or 'unknown'}{f' ({tested})' if tested else ''}"),
        ("login", f"{checked.login}{f' ({checked.login_note})' if checked.login_note else ''}"),
        ("models", str(checked.models or "unknown")),
    ]
    if checked.built_in:
        del rows[1:3]
    elif checked.rules_by:
        gap = "" if not checked.rules_missing else f"; not held for {', '.join(checked.rules_missing)}"
        rows.append(("rules", f"{checked.rules_by}{gap}"))
        rows += [("sandbox", checked.sandbox)] if checked.sandbox else []
    if checked.setup_missing:
        rows.append(("set-up", f"without effect: {', '.join(checked.setup_missing)}"))
    if checked.trouble and not diagnosis.remedy.startswith(checked.trouble.rstrip(".")):
        rows.append(("trouble", " ".join(checked.trouble.split())))
    if probe_ is not None:
        times = {
            "process": probe_.started_ms,
            "first event": probe_.event_ms,
            "first text": probe_.text_ms,
            "idle": probe_.idle_ms,
        }
        durations = ", ".join(f"{name} {ms / 1000:.1f} s" for name, ms in times.items() if ms is not None)
        rows.append(("probe", f"{'answered' if probe_.good else 'FAILED'}{f': {durations}' if durations else ''}"))
        if probe_.answer:
            rows.append(("said", probe_.answer.partition("\n")[0][:100]))
    return rows


def as_json(diagnoses: Sequence[Diagnosis]) -> str:
    """Return a JSON list of objects: the fields of `AgentCheck`, `status`, `version_is`, `remedy`."""
    rows = [
        asdict(diagnosis.checked) | {"status": diagnosis.status, "version_is": diagnosis.tested, "remedy": diagnosis.remedy}
        for diagnosis in diagnoses
    ]
    return json.dumps(rows, indent=2)
