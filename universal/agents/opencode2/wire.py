"""The wire of OpenCode 2's server as lines: requests that we write, answers and events that we read.

    we write   {"id", "method", "path", "body"?}      an HTTP request
    we read    {"id", "status", "body"}               its answer; status 0 if there was none, body {"message"}
               {"event": {"id", "type", "data", ...}} a frame of `GET /api/event`

Source: the published contract of 2.0 and 2.1 (`compat_fixtures/opencode2`), docs/wire2.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from universal.agents import kit
from universal.agents.opencode2.dialects import Dialect, Msg
from universal.codec import Catalogue, Model, Prompt
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode import DEFAULT_MODEL, limit_of, modes_of
from universal.permissions import Rule
from universal.slash_commands import SlashCommand

NAME = "opencode2"
EVENTS_PATH = "/api/event"

SYSTEM_ENTRY = "opencode-shim"
"""Key of the instructions entry with a prompt's system text."""
RETRY_LIMIT_MS = 3_600_000
"""Longest wait for a retry that is taken from an event, in milliseconds."""

OFFERS = ("/api/model", "/api/model/default", "/api/agent", "/api/command", "/api/skill")
"""Paths that the catalogue is read from. An answer that is an error is left out."""

CATALOGUE_EVENTS = frozenset(
    {"model.updated", "provider.updated", "catalog.updated", "agent.updated", "command.updated", "skill.updated"}
)
"""Events after which the catalogue is read again."""

ACTIONS: Mapping[str, str] = {"bash": "shell", "task": "subagent", "write": "edit", "apply_patch": "edit"}
"""Permission of OpenCode 1 -> action of OpenCode 2; all others keep their name."""
PERMISSIONS: Mapping[str, str] = {"shell": "bash", "subagent": "task"}
"""Action of OpenCode 2 -> permission of OpenCode 1; all others keep their name."""

IGNORED = kit.by_reason(
    {
        "the stream is open: the runtime waits for it": "server.connected",
        "the prompt's own choice comes back": "session.agent.selected session.model.selected",
        "ours stay where they are": "session.moved",
        "nobody of ours writes it": "session.metadata.updated",
        "the rules that we gave come back": "session.permissions",
        "of its own clients": "session.viewed session.archived session.unarchived",
        "the sum of the steps, which tell their own": "session.usage.updated",
        "tokens of titles and compactions; the turn's are those of its steps": "session.usage.recorded",
        "ours are never deleted there": "session.deleted",
        "ours are never forked there": "session.forked",
        "nobody of ours takes a prompt back": "session.inbox.cancelled",
        "nobody of ours changes it": "session.inbox.delivery.changed",
        "instructions to the model": "session.instructions.updated",
        "a hidden input of the model": "session.synthetic",
        "the skill's text goes to the model": "session.skill.activated",
        "commands of a person are the server's own": "session.shell.started session.shell.ended",
        "the step's end follows": "session.step.streamed",
        "a part begins with its first text": "session.text.started session.reasoning.started",
        "the call follows, with the arguments": "session.tool.input.ended",
        "the compaction's start follows": "session.compaction.admitted",
        "the summary is no answer": "session.compaction.delta",
        "its own undo; ours is the server's": "session.revert.staged session.revert.cleared session.revert.committed",
        "of the log only": "session.message.content.updated",
        "a carry-over from OpenCode 1; executions tell the same": "session.status session.idle",
        "the stream ends with it, and so does the process": "location.shutdown",
        "the server watches by itself": "filesystem.changed",
    }
)
"""Types of events that are ignored -> why."""

IGNORED_FAMILIES = kit.by_reason(
    {
        "its catalogue is asked for": "plugin. config. models-dev.",
        "state of its own": "reference. integration. credential. websearch.",
        "the server has its own projects": "project. worktree.",
        "the server looks by itself": "vcs.",
        "its tools are called by their names": "mcp.",
        "an update of it is not ours to offer": "installation.",
        "the tool's call and result tell the same": "shell.",
        "terminals are the server's": "pty. persistent-pty.",
        "its own user interface": "tui.",
        "of its plugins": "rpc.",
        "diagnostics are in the tools' results": "lsp.",
    }
)
"""Prefixes of types of events that are ignored -> why."""


def delay_ms(at: Json, created: Json, attempt: int) -> int:
    """Return how long a retry waits in milliseconds: from its event to `at`, or 2 s to 32 s by attempt if that is absurd."""
    if isinstance(at, (int, float)) and isinstance(created, (int, float)) and 0 <= (wait := int(at - created)) <= RETRY_LIMIT_MS:
        return wait
    return 1000 * 2 ** min(max(attempt - 1, 1), 5)


def model_ref(model: str | None, variant: str | None) -> Msg | None:
    """Return `provider/model` as a model reference, or None without a provider. A model's id may contain slashes."""
    provider, _, id_ = (model or "").partition("/")
    if not id_:
        return None
    return {"providerID": provider, "id": id_, **({"variant": variant} if variant else {})}


def prompt_body(dialect: Dialect, prompt: Prompt, message: str) -> Msg:
    """Return the body of `POST /api/session/{id}/prompt`."""
    files = file_inputs(prompt)
    fields: Msg = {"text": prompt.text, **({"files": files} if files else {})}
    own_id: Msg = {"id": message} if message else {}
    return {**own_id, "prompt": fields} if dialect.is_wrapped else {**own_id, **fields}


def prompt_after(page: Msg, anchor: str) -> tuple[bool, str]:
    """Return whether a page of messages, the newest first, holds the anchor, and the oldest prompt that came after it."""
    prompt = ""
    for message in map(obj, arr(page.get("data"))):
        if text(message.get("id")) == anchor:
            return True, prompt
        if message.get("type") == "user":
            prompt = text(message.get("id"))
    return False, prompt


def command_body(dialect: Dialect, prompt: Prompt, name: str, arguments: str) -> Msg:
    """Return the body of `POST /api/session/{id}/command`."""
    name_key, text_key = dialect.command
    files = file_inputs(prompt)
    return {name_key: name, text_key: arguments, **({"files": files} if files else {})}


def file_inputs(prompt: Prompt) -> list[Msg]:
    """Return the attachments as files of a prompt: bytes and texts as data URLs, others by the file's URL."""
    rows: list[Msg] = []
    for attachment in prompt.attachments:
        if uri := kit.attachment_url(attachment):
            rows.append({"uri": uri, **({"name": attachment.filename} if attachment.filename else {})})
    return rows


def ruleset(rules: Iterable[Rule]) -> list[Msg]:
    """Return permission rules in OpenCode 2's form. `allow` rules before the first other rule are left out."""
    rows: list[Msg] = []
    for rule in rules:
        if rows or rule.action != "allow":
            action = ACTIONS.get(rule.permission, rule.permission)
            rows.append({"action": action, "resource": rule.pattern, "effect": rule.action})
    return rows


def read_catalogue(answers: Mapping[str, Json]) -> Catalogue:
    """Return the catalogue of the answers to `OFFERS`."""
    rows = {path: arr(obj(answer).get("data")) for path, answer in answers.items()}
    models = [_model(obj(row)) for row in rows.get("/api/model", []) if obj(row).get("enabled") is not False]
    preferred = obj(obj(answers.get("/api/model/default")).get("data"))
    default = f"{text(preferred.get('providerID'))}/{text(preferred.get('id'))}"
    commands = [SlashCommand(name, text(row.get("description"))) for name, row in _pairs(rows.get("/api/command", []), "name")]
    names = {command.name for command in commands}
    skills = [SlashCommand(name, text(row.get("description"))) for name, row in _pairs(rows.get("/api/skill", []), "id")]
    return Catalogue(
        models=(*models, DEFAULT_MODEL),
        commands=(*commands, *(skill for skill in skills if skill.name not in names)),
        default_model=default if any(model.id == default for model in models) else DEFAULT_MODEL.id,
        modes=modes_of(rows.get("/api/agent"), "id"),
    )


def skill_names(answer: Json) -> frozenset[str]:
    """Return the ids of the skills of an answer to `/api/skill`."""
    return frozenset(name for name, _ in _pairs(arr(obj(answer).get("data")), "id"))


def _pairs(rows: Iterable[Json], key: str) -> list[tuple[str, Msg]]:
    return [(text(row.get(key)), row) for row in map(obj, rows) if text(row.get(key))]


def _model(row: Msg) -> Model:
    can, limit = obj(row.get("capabilities")), obj(row.get("limit"))
    provider, id_ = text(row.get("providerID")), text(row.get("id"))
    return Model(
        id=f"{provider}/{id_}",
        name=f"{text(row.get('name')) or id_} ({provider})",
        variants=tuple(name for name, _ in _pairs(arr(row.get("variants")), "id")),
        reasoning=bool(arr(row.get("variants"))),
        images="image" in arr(can.get("input")),
        context=limit_of(limit.get("context")),
        output=limit_of(limit.get("output")),
    )


_CODES: Mapping[str, str] = {"provider.auth": "ProviderAuthError", "aborted": "aborted"}
"""Type of an error -> the error code that faces know."""


def error_of(native: Json) -> dict[str, Json]:
    """Return an error `{type, message, status?}`, or an answer's body `{_tag, message}`, as a universal error."""
    values = obj(native)
    kind = text(values.get("type")) or text(values.get("_tag")) or "UnknownError"
    details: dict[str, Json] = {"type": kind}
    if isinstance(values.get("status"), int):
        details["status_code"] = values["status"]
    code = _CODES.get(kind) or ("APIError" if kind.startswith("provider.") else kind)
    return {"message": text(values.get("message")) or kind, "code": code, "details": details}


ENDS: Mapping[str, kit.Sign] = {
    "session.execution.succeeded": kit.Sign("the end itself. Without our prompt, that is still to come", kit.END_S),
    "session.execution.failed": kit.Sign("the end itself, with its error"),
    "session.execution.interrupted": kit.Sign("the end itself, after an interrupt or a rejection"),
    "session.step.ended": kit.Sign("a step that calls no tools", kit.END_S),
    "session.step.failed": kit.Sign("a step with an error", kit.END_S),
    "GET /api/session/active": kit.Sign("lists only sessions that work; asked after a sign and each POLL_S", kit.END_S),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows, and how long the others are waited for before OpenCode is asked."""

UNDO = frozenset({"history", "stage", "commit"})
"""Purposes of the requests that cut a conversation."""
