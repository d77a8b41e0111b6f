"""The type of a row in an agent's table of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """How OpenCode shows one tool of an agent. The table's key is the agent's name of the tool."""

    tool: str
    """OpenCode's name of the tool."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """The agent's name of an argument -> OpenCode's. Other arguments keep their names."""
    changes: bool = False
    """True for a todo tool whose calls hold only changes of the list."""
    permission: str = ""
    """The OpenCode tool whose permission a call needs, if that is not `tool`."""
    folder: str = ""
    """The agent's argument that says where a command runs. Without one it runs in the session's directory."""
    spellings: Callable[[str], tuple[str, ...]] = lambda path: (path,)
    """The paths that the agent may open for a path of a call."""
