"""Checks values of OpenCode's configuration by its own schema. Unknown keys are dropped, as native OpenCode drops them.

`admit` leaves out and reports faulty values, and keeps the rest. Native OpenCode refuses every request of the directory
instead, and its TUI does not start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from shim.host.config._generated.config_models import Config
from shim.lib.complaints import Fault, Located, fault_of, located_errors

NAMED_ENTRIES = frozenset(
    {"command", "agent", "mode", "provider", "mcp", "permission", "formatter", "lsp", "reference", "references"}
)
"""Keys that hold named entries. A fault in one entry does not remove the others."""
DESCRIBED_LIMIT = 20
"""Maximum faults of one file that are described. The others are only counted."""


class ValidConfig(NamedTuple):
    """The valid values of a config, and its faults, each with its place in the values."""

    values: dict[str, Any]
    problems: tuple[Fault, ...]


def admit(values: Mapping[str, Any]) -> ValidConfig:
    """Return the valid part of a config. In the keys of `NAMED_ENTRIES`, only the faulty entry is dropped."""
    rest = json.loads(json.dumps(values))
    problems: list[Fault] = []
    undescribed = 0
    while True:
        try:
            admitted = wire(Config.model_validate_json(json.dumps(rest), strict=True))
        except ValidationError as error:
            for path, errors in _faulty(error, rest).items():
                if len(problems) < DESCRIBED_LIMIT:
                    problems.append(fault_of(errors))
                else:
                    undescribed += 1
                _drop(rest, path)
        else:
            more = [Fault(f"and {undescribed} more faults", [])] if undescribed else []
            return ValidConfig(admitted, (*problems, *more))


def _faulty(error: ValidationError, values: dict[str, Any]) -> dict[tuple[str | int, ...], list[Located]]:
    """Map each path to drop to its errors. One pass covers all faults, so that a file is not validated once per fault."""
    located = located_errors(error, values)
    inner = {path[0] for _, path in located if len(path) > 1 and path[0] in NAMED_ENTRIES}
    faults: dict[tuple[str | int, ...], list[Located]] = {}
    for fault in located:
        path = fault[1]
        if path and path[0] in inner:
            if len(path) > 1:  # shorter paths only say that another member of the union does not match
                faults.setdefault(tuple(path[:2]), []).append(fault)
        else:
            faults.setdefault(tuple(path[:1]), []).append(fault)
    return faults


def wire(config: Config) -> dict[str, Any]:
    """The explicitly set keys as JSON. A null stays only where the client sent it."""
    return config.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _drop(values: dict[str, Any], path: tuple[str | int, ...]) -> None:
    inner = values.get(cast("str", path[0])) if len(path) == 2 else None
    if isinstance(inner, dict):
        cast("dict[str | int, Any]", inner).pop(path[1], None)
    else:
        # An empty path cannot happen for a dict. Clearing all values ends the caller's loop even then.
        values.pop(cast("str", path[0]), None) if path else values.clear()
