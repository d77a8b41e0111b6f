"""The ways to log in that an ACP agent names (`authMethods`): which one needs no person, and what a person does for the others.

The forms were recorded: an `env_var` method names its variables in `vars`, others in their text (Qwen Code), or speak of an API
key only (codex-acp). A `terminal` method has arguments for the agent's program (pi-acp), others name a command (OpenCode).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from universal.agents.acp.wire import Msg
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_KEY_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN)$")
_KEY_METHOD = re.compile(r"\bapi[-_ ]?keys?\b|\btokens?\b", re.IGNORECASE)
_COMMAND = re.compile(r"\brun\s+`([^`\n]{1,200})`", re.IGNORECASE)
_INTERPRETER = re.compile(r"(?:python|pypy|node|deno|bun|ruby|perl|java|bash|sh|env|tsx)[\d.]*(?:\.exe)?")


def environment_method(methods: Json, environment: Mapping[str, str], key_variables: Sequence[str]) -> str:
    """Return the id of the first method that variables of the agent's environment answer, or "".

    In: `key_variables`, those that hold a key for this agent.
    """
    names = {name for name, value in environment.items() if value}
    return next((_id(method) for method in _methods(methods) if _is_answered(method, names, key_variables)), "")


def _methods(methods: Json) -> Iterator[Msg]:
    return (method for method in map(obj, arr(methods)) if _id(method))


def _id(method: Msg) -> str:
    return get_text(method, "id")


def _text(method: Msg) -> str:
    return " ".join(get_text(method, key) for key in ("id", "name", "description"))


def _is_answered(method: Msg, names: set[str], key_variables: Sequence[str]) -> bool:
    if get_text(method, "type") == "terminal":
        return False
    if variables := [obj(row) for row in arr(method.get("vars"))]:
        return all(get_text(row, "name") in names for row in variables if row.get("optional") is not True)
    if mentioned := set(_VARIABLE.findall(_text(method))):
        return bool(mentioned & names)
    return bool(_KEY_METHOD.search(_text(method)) and names & set(key_variables))


def key_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that hold a key, by their names: those that a person has set for one agent."""
    return tuple(name for name in environment if _KEY_VARIABLE.search(name))


def login_hint(name: str, title: str, command: Sequence[str], methods: Json) -> str:
    """Return what a person does to log in. In: the agent's name in the settings, its title and its command."""
    found = list(_methods(methods))
    run = next(filter(None, (_login_command(command, method) for method in found)), "")
    variables = sorted({variable for method in found for variable in _variables(method)})
    how = f"Run `{run}` in a terminal to log in to {title}" if run else ""
    how = how or f"Log in to {title} with its own program (`{program_of(command)}`) in a terminal"
    setting = f'env = {{ {variables[0] if variables else "NAME"} = "..." }} in [agents.{name}]'
    keys = f"{' or '.join(variables)}" if variables else "its key, as its documentation names it,"
    return f"{how}, or give it {keys} in this server's settings: {setting}."


def _variables(method: Msg) -> set[str]:
    named = {get_text(obj(row), "name") for row in arr(method.get("vars"))}
    return (named or set(_VARIABLE.findall(_text(method)))) - {""}


def _login_command(command: Sequence[str], method: Msg) -> str:
    """Return the command that a method names: the agent's program with arguments, another program, or one in its text."""
    if get_text(method, "type") == "terminal":
        return shlex.join((*command, *(word for word in arr(method.get("args")) if isinstance(word, str))))
    terminal = obj(obj(method.get("_meta")).get("terminal-auth"))
    if program := get_text(terminal, "command"):
        return shlex.join((program, *(word for word in arr(terminal.get("args")) if isinstance(word, str))))
    match = _COMMAND.search(get_text(method, "description"))
    return match[1] if match else ""


def program_of(command: Sequence[str]) -> str:
    """Return the program of a command as a person knows it: without its folder, and not the interpreter that runs it."""
    program = command[0].rpartition("/")[2]
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    if program in ("npx", "bunx", "uvx", "pnpx") and script:
        return f"{program} {script}"
    return script.rpartition("/")[2] if _INTERPRETER.fullmatch(program) and script else program
