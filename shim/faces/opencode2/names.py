"""Converts names of OpenCode 1 to OpenCode 2's: tools, arguments, permissions, models, errors. Pure.

In: values of the core, with tools named as in `universal.tools`. Out: values of `v2_0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from universal.lib.jsonvalue import arr, obj, text
from universal.opencode_metadata import error_of
from universal.session.transcript import INTERRUPTED
from universal.session.values import RETRY_FAILED, Failure, ModelRef

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types

TOOLS: dict[str, str] = {"bash": "shell", "task": "subagent", "apply_patch": "patch"}
"""Tool of 1.x -> tool of 2.x. All others keep their name, also `todowrite`, of which 2.x shows only the call."""

ARGUMENTS: dict[str, dict[str, str]] = {
    "read": {"filePath": "path"},
    "edit": {"filePath": "path"},
    "write": {"filePath": "path"},
    "shell": {"run_in_background": "background"},
    "subagent": {"subagent_type": "agent", "run_in_background": "background"},
    "skill": {"name": "id"},
}
"""Tool of 2.x -> the argument's name in 1.x -> its name in 2.x."""

ACTIONS: dict[str, str] = {"bash": "shell", "task": "subagent", "write": "edit", "apply_patch": "edit"}
"""Permission of 1.x -> action of 2.x. All others keep their name."""

ERRORS: dict[str, str] = {
    "ProviderAuthError": "provider.auth",
    "MessageAbortedError": "aborted",
    "RetryFailed": "provider.internal",
}
"""Name of OpenCode 1's error object -> type of 2.x. `APIError` is looked up in `STATUSES`; others are `unknown`."""

CODES: dict[str, str] = {
    "authentication_failed": "ProviderAuthError",
    "ProviderAuthError": "ProviderAuthError",
    "aborted": "MessageAbortedError",
    RETRY_FAILED: "RetryFailed",
}
"""Code of a failure -> its name in `ERRORS`."""

CUT_OFF = "The answer was cut off at the model's limit."
"""Message of a failure with the code `max_output_tokens` and no words."""

STATUSES: tuple[tuple[range, str], ...] = (
    (range(401, 402), "provider.auth"),
    (range(403, 404), "provider.auth"),
    (range(400, 500), "provider.invalid-request"),
    (range(500, 600), "provider.internal"),
)
"""Statuses of a model's API -> type of 2.x. The first row that fits counts."""

FINISHES = frozenset({"stop", "length", "tool-calls", "content-filter", "error", "unknown"})
"""Finish reasons of a step. Any other is `unknown`, with the agent's word in `rawFinish`."""

STEP_INTERRUPTED = "Step interrupted"
TOOL_INTERRUPTED = "Tool execution interrupted"
"""OpenCode's text."""


def tool_name(name: str) -> str:
    """The name of a tool in 2.x."""
    return TOOLS.get(name, name)


def arguments(tool: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call. In: `tool`, its name in 2.x."""
    names = ARGUMENTS.get(tool, {})
    return {names.get(key, key): value for key, value in values.items()}


def model_ref(model: ModelRef) -> types.ModelRef:
    """The `ModelRef` of a model. The default variant is left out."""
    ref: types.ModelRef = {"id": model.model_id, "providerID": model.provider_id}
    if model.variant and model.variant != "default":
        ref["variant"] = model.variant
    return ref


def rules(permission: Any) -> list[types.PermissionRule]:
    """The `PermissionRuleset` of rules of 1.x."""
    return [
        {
            "action": ACTIONS.get(text(rule.get("permission")), text(rule.get("permission"))),
            "resource": text(rule.get("pattern")),
            "effect": cast("types.PermissionEffect", text(rule.get("action"))),
        }
        for rule in map(obj, arr(permission))
    ]


def error(failure: Failure) -> types.SessionStructuredError:
    """The `SessionStructuredError` of an error."""
    if (native := error_of(failure.details)) is not None:  # the error object of an OpenCode
        return _error(native.name, native.message, native.status)
    details = failure.details or {}
    hint = details.get("hint")
    words = f"{failure.message}\n{hint}" if hint else failure.message
    if failure.code == "max_output_tokens":
        return _error("", words or CUT_OFF, None)
    if failure.code in CODES:
        return _error(CODES[failure.code], words, None)
    status = details.get("status_code")
    return _error("APIError" if isinstance(status, int) or failure.code == "APIError" else "UnknownError", words, status)


def _error(name: str, words: str, status: object) -> types.SessionStructuredError:
    kind = ERRORS.get(name, "unknown")
    if isinstance(status, int):
        kind = next((type_ for statuses, type_ in STATUSES if status in statuses), kind)
    message = STEP_INTERRUPTED if kind == "aborted" else words or (CUT_OFF if "Length" in name else name)
    wire: types.SessionStructuredError = {"type": kind, "message": message}
    return {**wire, "status": status} if isinstance(status, int) else wire


def tool_error(words: str, *, interrupted: bool, refused: bool) -> types.SessionStructuredError:
    """The `SessionStructuredError` of a failed tool call."""
    if interrupted:
        return {"type": "aborted", "message": TOOL_INTERRUPTED if words == INTERRUPTED else words}
    return {"type": "aborted" if refused else "unknown", "message": words}


class StepFinish(TypedDict):
    """The fields of a finished step that say why it ended."""

    finish: types.FinishReason
    rawFinish: NotRequired[str]


def finish(reason: str) -> StepFinish:
    """The `finish` of a step, and `rawFinish` if `v2_0` has no such finish reason."""
    return {"finish": cast("types.FinishReason", reason)} if reason in FINISHES else {"finish": "unknown", "rawFinish": reason}
