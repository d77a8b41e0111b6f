"""Stores API keys from clients (`PUT /auth/{providerID}`) in one private file, and gives them to agents as variables.

    auth.json   {"claude": {"type": "api", "key": "..."}}     the form of OpenCode's own file of that name; mode 0600

A running agent keeps the key of its start; the next start gets the new one. No log, event, recording or answer holds a key, and
no route reads it. A key replaces the variable of the person's environment, because the person set it later and on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import RLock

from shim.lib import disk
from shim.lib.errors import StoreError
from universal.agent_spec import AgentSpec
from universal.lib.jsonvalue import obj, text
from universal.lib.paths import expand

MODEL_PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
}
"""Model provider -> its variables. Every agent gets such a key, since Pi and OpenCode use several providers."""


def key_variables(specs: Iterable[AgentSpec]) -> dict[str, tuple[str, ...]]:
    """Agent or model provider that takes a key -> the variables that hold it: these agents, and `MODEL_PROVIDERS`."""
    return {spec.name: spec.program.key_variables for spec in specs if spec.program.key_variables} | dict(MODEL_PROVIDERS)


class KeyStore:
    """The keys, in memory and in the file. Without a path, in memory alone. Methods that write block. Threads may share it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._keys: dict[str, str] | None = None if path is not None else {}
        self._lock = RLock()

    def _stored_keys(self) -> dict[str, str]:
        with self._lock:  # what is read while a key is written would undo that
            if self._keys is None:
                assert self._path is not None
                try:
                    rows = obj(json.loads(self._path.read_text()))
                except (OSError, ValueError):  # missing or invalid: the person is asked again
                    rows = {}
                keys = {name: text(obj(row).get("key")) for name, row in rows.items()}
                self._keys = {name: key for name, key in keys.items() if key}
            return self._keys

    def environment(self, spec: AgentSpec) -> dict[str, str]:
        """Variables for an agent's process: keys of model providers, then the agent's own key."""
        keys = self._stored_keys()
        shared = {name: key for provider, key in keys.items() for name in MODEL_PROVIDERS.get(provider, ())}
        return shared | (dict.fromkeys(spec.program.key_variables, keys[spec.name]) if spec.name in keys else {})

    def providers(self) -> list[str]:
        """Agents and model providers with a key. The keys are not returned."""
        return list(self._stored_keys())

    def set(self, provider: str, key: str) -> None:
        """Store a key. Raises StoreError if it cannot be written; then the old key stays."""
        with self._lock:
            self._write({**self._stored_keys(), provider: key})

    def remove(self, provider: str) -> None:
        """Remove a key. Succeeds also if there is none. Raises StoreError."""
        with self._lock:
            if provider in (keys := self._stored_keys()):
                self._write({name: key for name, key in keys.items() if name != provider})

    def _write(self, keys: dict[str, str]) -> None:
        if self._path is not None:
            try:
                rows = {name: {"type": "api", "key": key} for name, key in keys.items()}
                disk.put_private(self._path, json.dumps(rows))
            except OSError as error:
                raise StoreError(f"The key could not be kept in {self._path}: {error.strerror or error}.") from error
        self._keys = keys


# --- signs of a login ---------------------------------------------------------------------------------------------

# Whether an agent has a login, by its environment and its files. Contents of files are never read.


def is_logged_in(spec: AgentSpec, environ: Mapping[str, str], *, tells: bool) -> bool:
    """Whether one of the agent's login signs exists. Without signs, the answer is `tells`: it lists its models. Blocking."""
    signs = spec.program.login_signs
    if signs is None:
        return tells
    files = (expand(path, environ) for path in signs.files)
    return any(environ.get(name) for name in signs.variables) or any(file is not None and file.is_file() for file in files)
