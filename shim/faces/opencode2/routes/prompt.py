"""Decodes what is sent to a session (prompts, commands, skills, texts of programs) and submits it; and routes of its inbox.

Source: compat_fixtures/opencode2/operations.json, recordings `extras`, `busy_*`, `errors` of v2-20260717.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import CommandNotFound, ResourceConflict, SkillNotFound
from shim.faces.opencode2.routes.sessions import SessionPath, inbox_item, need
from shim.host.config.skills import Skill
from shim.host.files.contents import TEXT, sniff_type
from shim.host.files.prompt_files import BINARY_LIMIT_BYTES
from shim.host.files.roots import within
from shim.http.operation import Ctx
from shim.lib import disk
from shim.lib.errors import Conflict, InvalidRequest
from shim.sessions.permissions.unattended_policy import terms_of_headers
from shim.sessions.prompts.command import UnknownCommand
from shim.sessions.prompts.command import command as run_command
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.server_commands import templates
from shim.sessions.prompts.structured_answers import check_format
from shim.sessions.prompts.submit import first_text, submit
from universal.lib.jsonvalue import JsonObject, obj
from universal.session.entries import PendingPrompt, PromptEntry
from universal.session.model import Session
from universal.session.user_prompt import PromptDetails, SkillText
from universal.session.values import AgentMention, File, Part, Text

# --- files of a prompt -----------------------------------------------------------------------------------

# Converts the files and agents of a client's prompt to parts, and to the values that OpenCode 2 stores.
#
#     {text, files: [{uri, name?, description?, mention?}], agents: [{name, mention?}]}  ->  parts, and details for the inbox
#
# A file's type is found by its bytes, as in OpenCode. Text goes into the prompt; images and PDFs are attached.

DIRECTORY = "application/x-directory"
SCHEMES = ("file", "data")


async def file_parts(attachments: Sequence[JsonObject], roots: Sequence[str]) -> tuple[list[File], list[JsonObject]]:
    """(parts, stored): file parts, and the files as OpenCode 2 keeps them, `{data, mime, source, name?, ...}`.

    Raises InvalidRequest for a URI that is neither `file:` nor `data:`, and for a file that is missing, too large or outside of
    the roots.
    """
    parts: list[File] = []
    stored: list[JsonObject] = []
    for number, attachment in enumerate(attachments):
        uri = str(attachment["uri"])
        scheme = uri.partition(":")[0].lower()
        if scheme not in SCHEMES:
            raise _bad(number, f'only "file:" and "data:" URIs are read, not "{uri[:100]}"')
        mime, content, source = _inline(number, uri) if scheme == "data" else await asyncio.to_thread(_read, number, uri, roots)
        name = attachment.get("name") or (Path(unquote(urlsplit(uri).path)).name if scheme == "file" else None)
        labels = {key: attachment[key] for key in ("name", "description", "mention") if attachment.get(key) is not None}
        stored.append({"data": base64.b64encode(content).decode(), "mime": mime, "source": source, **labels})
        url = uri if scheme == "file" else f"data:{mime};base64,{base64.b64encode(content).decode()}"
        parts.append(File("", TEXT if mime.startswith("text/") else mime, url, name or None))
    return parts, stored


def _inline(number: int, uri: str) -> tuple[str, bytes, JsonObject]:
    head, comma, body = uri.partition(",")
    try:
        content = base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
    except binascii.Error as error:
        raise _bad(number, "the data is not base64") from error
    if not comma:
        raise _bad(number, "a data: URI has a comma before its data")
    _need_size(number, len(content))
    declared = head.removeprefix("data:").partition(";")[0]
    sniffed = sniff_type(content, "")
    return (declared if sniffed == TEXT and declared.startswith("text/") else sniffed), content, {"type": "inline"}


def _read(number: int, uri: str, roots: Sequence[str]) -> tuple[str, bytes, JsonObject]:
    path = unquote(urlsplit(uri).path)
    source = {"type": "uri", "uri": uri}
    if "\0" in path or not path.startswith("/"):
        raise _bad(number, "a file: URI names an absolute path")
    if not within(path, roots):
        raise _bad(number, f"{path} is outside of the directories that this server may use")
    file = Path(path)
    try:
        if disk.is_folder(file):
            return DIRECTORY, b"", source
        content, size = disk.head(file, BINARY_LIMIT_BYTES + 1)
    except OSError as error:
        raise _bad(number, f"{path} cannot be read: {error.strerror or error}") from error
    _need_size(number, max(size, len(content)))
    return sniff_type(content, path), content, source


def _need_size(number: int, size: int) -> None:
    if size > BINARY_LIMIT_BYTES:
        raise _bad(number, f"{size} bytes, at most {BINARY_LIMIT_BYTES} are taken")


def _bad(number: int, why: str) -> InvalidRequest:
    return InvalidRequest(f"This file cannot be attached: {why}", path=("files", number, "uri"))


def agent_parts(mentions: Sequence[JsonObject]) -> list[AgentMention]:
    """The agent parts for mentions of agents (`@agent`)."""
    parts: list[AgentMention] = []
    for row in mentions:
        mention: Any = row.get("mention")
        source = {"value": mention["text"], "start": mention["start"], "end": mention["end"]} if mention else None
        parts.append(AgentMention("", row["name"], source))
    return parts


# --- operations ------------------------------------------------------------------------------------------


@operation("session.prompt")
async def prompt(ctx: Ctx, path: SessionPath, body: requests.PromptBody) -> object:
    """Accept a prompt. The same id with the same prompt is accepted once; with another prompt it is a 409."""
    parts, details = await _parts(ctx, path.sessionID, body)
    details = replace(details, kind="user", metadata=body.metadata or None)
    format_ = obj(body.metadata).get("format")  # OpenCode 2 has no field for it
    check_format(format_, "metadata")
    prompt = PromptRequest((Text("", body.text), *parts), body.id, details=details, format=format_)
    return {"data": await _admit(ctx, path.sessionID, prompt, resume=body.resume is not False)}


async def skill_of(ctx: Ctx, session_id: str, skill_id: str) -> Skill | None:
    """The skill with this id in the session's directory, or None."""
    directory = need(ctx, session_id).directory
    listing = await asyncio.to_thread(ctx.services.config.skills, directory)
    return next((entry for entry in listing if entry.id == skill_id), None)


async def _skills(
    ctx: Ctx, session_id: str, bodies: list[requests.PromptInputSkillAttachment] | None
) -> tuple[list[Part], list[JsonObject]]:
    """The parts for the mentioned skills, and their entries in the inbox item. Raises InvalidRequest."""
    parts: list[Part] = []
    named: list[JsonObject] = []
    for body in bodies or ():
        skill = await skill_of(ctx, session_id, body.id)
        if skill is None:
            raise InvalidRequest(f"Skill not found: {body.id}. GET /api/skill lists those that there are", path=("skills",))
        parts.append(Text("", skill.as_prompt(), synthetic=True))
        mention = {} if body.mention is None else {"mention": body.mention.model_dump()}
        named.append({"id": skill.id, "name": skill.name, "text": skill.content, **mention})
    return parts, named


async def _parts(ctx: Ctx, session_id: str, body: requests.PromptBody | requests.CommandBody) -> tuple[list[Part], PromptDetails]:
    """The parts of all that goes along with a text, and how the inbox shows them. Raises InvalidRequest."""
    agents = [agent.model_dump(exclude_none=True) for agent in body.agents or ()]
    files = [file.model_dump(exclude_none=True) for file in body.files or ()]
    parts, stored = await file_parts(files, ctx.roots)
    texts, skills = await _skills(ctx, session_id, body.skills)
    details = PromptDetails(body.delivery or "steer", files=tuple(stored), agents=tuple(agents), skills=tuple(skills))
    return [*parts, *agent_parts(agents), *texts], details


async def _admit(ctx: Ctx, session_id: str, body: PromptRequest, *, resume: bool) -> JsonObject:
    """Accept a prompt once and return its inbox item. Raises ResourceConflict if the id belongs to another message."""
    need(ctx, session_id)
    body = replace(body, **terms_of_headers(ctx.request.headers))
    if body.message_id is not None:
        session = await ctx.services.sessions.session(session_id)
        if (prompt := find_prompt(session, body.message_id)) is not None:
            return _need_same(session, prompt, body)
    try:
        message_id = await submit(ctx.services.sessions, session_id, body, reply=resume)
    except Conflict:
        session = await ctx.services.sessions.session(session_id)
        prompt = find_prompt(session, body.message_id or "")
        if prompt is None:
            raise
        return _need_same(session, prompt, body)
    await ctx.services.store.flush(session_id)
    session = await ctx.services.sessions.session(session_id)
    prompt = find_prompt(session, message_id)
    if prompt is None:  # it was cancelled or undone in this moment
        raise Conflict(f"The prompt {message_id} was taken back by somebody else.")
    return inbox_item(session, prompt)


def find_prompt(session: Session, message_id: str) -> PendingPrompt | None:
    """The prompt with this id, waiting or delivered, or None. Raises ResourceConflict for a message that is no prompt."""
    waiting = session.timeline.inbox.get(message_id)
    if waiting is not None:
        return waiting
    entry = session.timeline.entries.get(message_id)
    if entry is None:
        return None
    if not isinstance(entry, PromptEntry):
        raise ResourceConflict(f"This message id is another record's: {message_id}", message_id)
    return replace(entry.prompt, accepted_ms=entry.created_ms, delivery="steer")


def _need_same(session: Session, prompt: PendingPrompt, body: PromptRequest) -> JsonObject:
    item, details = inbox_item(session, prompt), body.details
    optional = {
        "description": details.description,
        "metadata": details.metadata,
        "files": list(details.files),
        "agents": list(details.agents),
        "skills": list(details.skills),
    }
    payload = {"text": first_text(body), **{key: value for key, value in optional.items() if value}}
    if item["type"] != details.kind or item["payload"] != payload:
        raise ResourceConflict(f"Prompt message ID conflicts with an existing durable record: {prompt.id}", prompt.id)
    return item


@operation("session.synthetic")
async def synthetic(ctx: Ctx, path: SessionPath, body: requests.SyntheticBody) -> object:
    """Send a text of a program. The agent gets it as a prompt; clients show it as synthetic."""
    details = PromptDetails(
        body.delivery or "steer", "synthetic", description=body.description or "", metadata=body.metadata or None
    )
    prompt = PromptRequest((Text("", body.text),), body.id, details=details)
    return {"data": await _admit(ctx, path.sessionID, prompt, resume=body.resume is not False)}


@operation("experimental.session.skill")
async def skill(ctx: Ctx, path: SessionPath, body: requests.SkillBody) -> None:
    """Send a skill. The agent gets it as a prompt; clients see a skill at once. Raises SkillNotFound."""
    skill = await skill_of(ctx, path.sessionID, body.id)
    if skill is None:
        raise SkillNotFound(body.id)
    need(ctx, path.sessionID)
    prompt = PromptRequest(
        (Text("", skill.as_prompt()),),
        **terms_of_headers(ctx.request.headers),
        details=PromptDetails("steer", "skill", SkillText(skill.id, skill.name, skill.content)),
    )
    await submit(ctx.services.sessions, path.sessionID, prompt, reply=body.resume is not False)
    await ctx.services.store.flush(path.sessionID)


@operation("session.command")
async def command(ctx: Ctx, path: SessionPath, body: requests.CommandBody) -> None:
    """Run a slash command: a template of the server or the config, or a command of the agent."""
    directory = need(ctx, path.sessionID).directory
    parts, details = await _parts(ctx, path.sessionID, body)
    config = await ctx.services.config.fresh(directory)
    commands = templates(directory, config.commands)
    request = PromptRequest(parts, **terms_of_headers(ctx.request.headers), details=details)
    try:
        await run_command(ctx.services.sessions, commands, path.sessionID, body.name, body.text, request)
    except UnknownCommand as error:
        raise CommandNotFound(body.name, error.message) from error
    await ctx.services.store.flush(path.sessionID)


# --- the inbox -----------------------------------------------------------------------------------------


@operation("session.inbox.list")
async def inbox(ctx: Ctx, path: SessionPath) -> object:
    """The prompts that wait, oldest first."""
    session = await ctx.services.sessions.session(path.sessionID)
    return {"data": [inbox_item(session, prompt) for prompt in session.timeline.inbox.values()]}


@operation("session.inbox.update")
async def inbox_update(ctx: Ctx, path: requests.InboxPath, body: requests.InboxUpdateBody) -> None:
    """Change the delivery of a waiting prompt. 409 if it does not wait any more."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    is_changed = actor.prompt_queue.redeliver(path.inboxID, body.delivery)
    if not is_changed and not await actor.offers.recall(path.inboxID, body.delivery):
        raise ResourceConflict(f"{path.inboxID} does not wait in this inbox (any more).", path.inboxID)
    await ctx.services.store.flush(path.sessionID)


@operation("session.inbox.cancel")
async def inbox_cancel(ctx: Ctx, path: requests.InboxPath) -> None:
    """Cancel a waiting prompt. Succeeds also if it does not wait."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    if await actor.offers.recall(path.inboxID, None) or actor.prompt_queue.withdraw(path.inboxID):
        await ctx.services.store.flush(path.sessionID)
