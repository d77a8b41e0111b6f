"""Builds the directory of the agents of the settings: built-in ones, those of packages, and the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shim.agents import plugins
from shim.agents.directory import AgentDirectory
from shim.agents.keys import KeyStore
from shim.lib.clock import Clock
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.lib.settings_tables import CustomAgent
from shim.processes.inprocess import Program
from shim.processes.locate import INSTALLED
from shim.store.base import Store
from universal.agent_spec import AgentSpec
from universal.agents.acp.spec import custom_spec
from universal.agents.opencode2.spec import configured_spec as configured_opencode2_spec
from universal.agents.opencode2.wire import NAME as OPENCODE2_AGENT
from universal.registry import agents as known_agents
from universal.sandbox import strictest


def agents_of(settings: Settings, added: Mapping[str, AgentSpec] | None = None) -> dict[str, AgentSpec]:
    """Merge the registry, the agents that packages `added`, and the user's own agents; later ones win by name.

    Agents that the user did not add (`AgentSpec.is_fallback`) come last.
    """
    configured = {name: _configured_spec(name, agent) for name, agent in settings.agents.items() if agent.command}
    specs = {**known_agents(), **(added or {})}
    fallbacks = {name for name, spec in specs.items() if spec.is_fallback}
    ordered = dict(sorted({**specs, **configured}.items(), key=lambda row: row[0] in fallbacks))
    return {name: _with_sandbox(spec, settings, settings.agents.get(name)) for name, spec in ordered.items()}


def _with_sandbox(spec: AgentSpec, settings: Settings, agent: CustomAgent | None) -> AgentSpec:
    """Return the spec with the sandbox of the settings: the stricter level of the server's and the agent's, and its folders."""
    level = strictest(settings.sandbox, agent.sandbox) if agent is not None else settings.sandbox
    paths = agent.sandbox_paths if agent is not None else ()
    rules = replace(spec.rules, sandbox=spec.rules.sandbox._replace(level=level, paths=paths))
    return replace(spec, rules=rules) if level != "auto" or paths else spec


def _configured_spec(name: str, agent: CustomAgent) -> AgentSpec:
    """Return the spec of an agent of the settings: a program that speaks ACP, or that of OpenCode 2."""
    env = {key: value.get_secret_value() for key, value in agent.env.items()}
    if name == OPENCODE2_AGENT:
        return configured_opencode2_spec(agent.command, agent.title, env)
    return custom_spec(name, agent.command, agent.title, env)


def directory_of(
    settings: Settings,
    *,
    clock: Clock,
    ids: Ids,
    store: Store,
    environ: Mapping[str, str],
    owner: str,
    orphans: Callable[[], Sequence[str]],
    traceparent: Callable[[], str | None],
    specs: Mapping[str, AgentSpec] | None = None,
    programs: Mapping[str, Program] | None = None,
) -> AgentDirectory:
    """Build the directory, not started. In: `specs` instead of all agents; the others as for `AgentDirectory`."""
    added = plugins.load(agents_of(settings))
    return AgentDirectory(
        agents_of(settings, added.specs) if specs is None else specs,
        clock=clock,
        ids=ids,
        store=store,
        default_agent=settings.default_agent,
        environ={**environ, INSTALLED: str(settings.data_dir / "agents")},
        delay_factor=settings.mock_delay_factor,
        record_dir=settings.record_dir,
        keys=KeyStore(settings.data_dir / "auth.json"),
        owner=owner,
        orphans=orphans,
        broken=added.broken,
        packages=added.packages,
        programs=programs,
        traceparent=traceparent,
    )
