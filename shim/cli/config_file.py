"""`opencode-shim config set` and `unset`: change one line of the person's settings file and nothing else.

Comments and order stay. The new text is parsed before it is written. If it means anything else than the old text plus this
change, the file stays as it is and the error asks the person to edit it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr, ValidationError

from shim.lib import disk
from shim.lib.errors import ShimError
from shim.lib.settings import JSON_FIELDS, LIVE, Settings, config_files, like, sentences


class ConfigFileError(ShimError):
    """The settings file was not changed. The text says why and what to do."""


def set_value(name: str, text: str) -> Path:
    """Set one setting and return the path of the file. Raises ShimError for an unknown name or an invalid value."""
    _require_setting(name)
    if name in JSON_FIELDS:
        raise ConfigFileError(f"{name} is a table: write it into {_path()} yourself (docs/settings.md).")
    try:
        value: object = getattr(Settings.model_validate({name: text}), name)
    except ValidationError as error:
        raise ConfigFileError(sentences(error, {name: text}, {name: "argument"})) from error
    _write(name, _plain(value))
    return _path()


def add_agent(name: str, command: Sequence[str], title: str, env: Mapping[str, str]) -> Path:
    """Append an agent's table and return the path of the file. Raises ConfigFileError if the file sets this agent."""
    path = _path()
    old = _read(path)
    before = _parse(path, old)
    if name in before.get("agents", {}):
        raise ConfigFileError(f"{path} sets agents.{name} already. Remove its table to add it anew.")
    row = {"command": list(command), "title": title} | ({"env": dict(env)} if env else {})
    lines = [f"{key} = {_toml(value)}" for key, value in row.items()]
    start = f"{old.rstrip()}\n\n" if old.strip() else ""
    _put(path, f"{start}[agents.{name}]\n{chr(10).join(lines)}\n", before | {"agents": before.get("agents", {}) | {name: row}})
    return path


def _toml(value: Any) -> str:
    """A value as TOML on one line. Texts and lists are as in JSON."""
    if isinstance(value, dict):
        table = cast("dict[str, str]", value)
        return f"{{ {', '.join(f'{json.dumps(key)} = {json.dumps(text)}' for key, text in table.items())} }}"
    return json.dumps(value)


def unset(name: str) -> Path:
    """Remove one setting and return the path of the file. Raises ShimError if the file does not set it."""
    _require_setting(name)
    if name not in _parse(_path(), _read(_path())):
        raise ConfigFileError(f"{name} is not set in {_path()}.")
    _write(name, None)
    return _path()


def effect(name: str, path: Path) -> str:
    """Return one sentence: when the change takes effect, or what overrides the file."""
    source = Settings.load().sources()[name]
    if source.startswith("environment") or (source.startswith("file") and source != f"file {path}"):
        return f"But {source} overrides it."
    if name in LIVE:
        return "A running server applies it within a few seconds."
    return "A running server needs a restart for it: opencode-shim service restart, or stop it and start it again."


def _require_setting(name: str) -> None:
    if name not in Settings.model_fields:
        raise ConfigFileError(f"There is no setting {name}. {like(name)}")


def _path() -> Path:
    return config_files()[0]


def _plain(value: object) -> Any:
    """Return a setting's value in types that TOML can hold."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return [_plain(part) for part in cast("tuple[object, ...]", value)]
    return str(value) if isinstance(value, Path) else value


def _write(name: str, value: Any) -> None:
    path = _path()
    old = _read(path)
    before = _parse(path, old)
    new = _with_setting(old, name, None if value is None else f"{name} = {json.dumps(value, ensure_ascii=False)}")
    target = {key: setting for key, setting in before.items() if key != name} | ({} if value is None else {name: value})
    _put(path, new, target)


def _put(path: Path, new: str, target: Mapping[str, Any]) -> None:
    """Write the text if it means the target."""
    try:
        is_exact = tomllib.loads(new) == target
    except tomllib.TOMLDecodeError:
        is_exact = False
    if not is_exact:
        raise ConfigFileError(f"{path} is written in a form that this command cannot change. Edit the file; it is unchanged.")
    try:
        disk.put_private(path, new)
    except OSError as error:
        raise ConfigFileError(f"Cannot write {path}: {error.strerror}.") from error


def _with_setting(text: str, name: str, line: str | None) -> str:
    """Return `text` with this line for the setting, at its old place or before the first table. None removes the setting."""
    top = re.search(r"^[ \t]*\[", text, re.M)
    head, rest = (text[: top.start()], text[top.start() :]) if top else (text, "")
    place = re.compile(rf"^[ \t]*{re.escape(name)}[ \t]*=.*\n?", re.M)
    if place.search(head):
        return place.sub(lambda _: f"{line}\n" if line else "", head, count=1) + rest
    if head and not head.endswith("\n"):
        head += "\n"
    return f"{head}{line}\n{rest}" if line else text


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFileError(f"Cannot read {path}: {error}.") from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigFileError(f"Cannot read the settings of {path}: {error}. Correct it first.") from error
