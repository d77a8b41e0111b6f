"""Reads and writes the user's OpenCode configuration (`shim.host.config.opencode_config`). Source: recording `misc`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.generations import generation_of
from shim.host.changes import EVERYWHERE, AllDisposed, DirectoryDisposed, TuiToast
from shim.host.config._generated.config_models import Config
from shim.host.config.config_schema import wire
from shim.host.config.jsonc import JsoncError
from shim.host.config.opencode_config import OpenCodeConfig, describe
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest

log = structlog.get_logger(__name__)


@operation("config.get")
async def get(ctx: Ctx) -> object:
    """Return the directory's configuration. Faults in files are logged, and shown in an attached TUI."""
    config = await ctx.services.config.fresh(ctx.directory)
    _report_problems(ctx, config)
    generation = generation_of(ctx.request.query, ctx.request.headers)
    if generation != "v1.18":  # clients of 1.18 have their keys elsewhere, and its API document lacks them
        return {**config.values, "keybinds": KEYBINDS}
    return config.values


@operation("config.update")
async def update(ctx: Ctx, body: Config) -> object:
    """Change the directory's file, and make clients read everything again. It echoes the body, as native OpenCode does."""
    changes = wire(body)
    await _write(lambda update: ctx.services.config.update(ctx.directory, update), changes)
    # Native OpenCode ends running turns here. Our turns do not depend on the old configuration, so they go on.
    ctx.services.host.publish(DirectoryDisposed(ctx.directory), ctx.directory)
    return _without_nulls(changes)


@operation("global.config.get")
async def get_global(ctx: Ctx) -> object:
    """Return the user's own configuration."""
    config = await asyncio.to_thread(ctx.services.config.load_global)
    return config.values


@operation("global.config.update")
async def update_global(ctx: Ctx, body: Config) -> object:
    """Change the user's own file, and return its whole configuration."""
    await _write(ctx.services.config.update_global, wire(body))
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    return (await asyncio.to_thread(ctx.services.config.load_global)).values


async def _write(write: Callable[[Mapping[str, Any]], Path], changes: Mapping[str, Any]) -> None:
    try:
        await asyncio.to_thread(write, changes)
    except JsoncError as error:
        raise InvalidRequest(f"The configuration file is faulty and was left as it is: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"The configuration cannot be written: {error}") from error


def _report_problems(ctx: Ctx, config: OpenCodeConfig) -> None:
    if not config.problems:
        return
    lines = list(describe(config.problems))
    log.warning("config.faulty", directory=ctx.directory, problems=lines)
    toast = TuiToast("\n".join(lines), "warning", title="OpenCode configuration")
    ctx.services.host.publish(toast, ctx.directory)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}  # pyright: ignore[reportUnknownVariableType] - JSON
    return value


# --- keybinds --------------------------------------------------------------------------------------------

# Key bindings of TUIs up to 1.1, which take all of them from `GET /config`.
#
# A missing key has no binding there: without `session_interrupt`, Esc does nothing. Later TUIs have them in a file of their own.
# Source: `GET /config` of OpenCode 1.1.53 without any configuration.

KEYBINDS: Mapping[str, str] = {
    "leader": "ctrl+x",
    "app_exit": "ctrl+c,ctrl+d,<leader>q",
    "editor_open": "<leader>e",
    "theme_list": "<leader>t",
    "sidebar_toggle": "<leader>b",
    "scrollbar_toggle": "none",
    "username_toggle": "none",
    "status_view": "<leader>s",
    "session_export": "<leader>x",
    "session_new": "<leader>n",
    "session_list": "<leader>l",
    "session_timeline": "<leader>g",
    "session_fork": "none",
    "session_rename": "ctrl+r",
    "session_delete": "ctrl+d",
    "stash_delete": "ctrl+d",
    "model_provider_list": "ctrl+a",
    "model_favorite_toggle": "ctrl+f",
    "session_share": "none",
    "session_unshare": "none",
    "session_interrupt": "escape",
    "session_compact": "<leader>c",
    "messages_page_up": "pageup,ctrl+alt+b",
    "messages_page_down": "pagedown,ctrl+alt+f",
    "messages_line_up": "ctrl+alt+y",
    "messages_line_down": "ctrl+alt+e",
    "messages_half_page_up": "ctrl+alt+u",
    "messages_half_page_down": "ctrl+alt+d",
    "messages_first": "ctrl+g,home",
    "messages_last": "ctrl+alt+g,end",
    "messages_next": "none",
    "messages_previous": "none",
    "messages_last_user": "none",
    "messages_copy": "<leader>y",
    "messages_undo": "<leader>u",
    "messages_redo": "<leader>r",
    "messages_toggle_conceal": "<leader>h",
    "tool_details": "none",
    "model_list": "<leader>m",
    "model_cycle_recent": "f2",
    "model_cycle_recent_reverse": "shift+f2",
    "model_cycle_favorite": "none",
    "model_cycle_favorite_reverse": "none",
    "command_list": "ctrl+p",
    "agent_list": "<leader>a",
    "agent_cycle": "tab",
    "agent_cycle_reverse": "shift+tab",
    "variant_cycle": "ctrl+t",
    "input_clear": "ctrl+c",
    "input_paste": "ctrl+v",
    "input_submit": "return",
    "input_newline": "shift+return,ctrl+return,alt+return,ctrl+j",
    "input_move_left": "left,ctrl+b",
    "input_move_right": "right,ctrl+f",
    "input_move_up": "up",
    "input_move_down": "down",
    "input_select_left": "shift+left",
    "input_select_right": "shift+right",
    "input_select_up": "shift+up",
    "input_select_down": "shift+down",
    "input_line_home": "ctrl+a",
    "input_line_end": "ctrl+e",
    "input_select_line_home": "ctrl+shift+a",
    "input_select_line_end": "ctrl+shift+e",
    "input_visual_line_home": "alt+a",
    "input_visual_line_end": "alt+e",
    "input_select_visual_line_home": "alt+shift+a",
    "input_select_visual_line_end": "alt+shift+e",
    "input_buffer_home": "home",
    "input_buffer_end": "end",
    "input_select_buffer_home": "shift+home",
    "input_select_buffer_end": "shift+end",
    "input_delete_line": "ctrl+shift+d",
    "input_delete_to_line_end": "ctrl+k",
    "input_delete_to_line_start": "ctrl+u",
    "input_backspace": "backspace,shift+backspace",
    "input_delete": "ctrl+d,delete,shift+delete",
    "input_undo": "ctrl+-,super+z",
    "input_redo": "ctrl+.,super+shift+z",
    "input_word_forward": "alt+f,alt+right,ctrl+right",
    "input_word_backward": "alt+b,alt+left,ctrl+left",
    "input_select_word_forward": "alt+shift+f,alt+shift+right",
    "input_select_word_backward": "alt+shift+b,alt+shift+left",
    "input_delete_word_forward": "alt+d,alt+delete,ctrl+delete",
    "input_delete_word_backward": "ctrl+w,ctrl+backspace,alt+backspace",
    "history_previous": "up",
    "history_next": "down",
    "session_child_cycle": "<leader>right",
    "session_child_cycle_reverse": "<leader>left",
    "session_parent": "<leader>up",
    "terminal_suspend": "ctrl+z",
    "terminal_title_toggle": "none",
    "tips_toggle": "<leader>h",
    "display_thinking": "none",
}
