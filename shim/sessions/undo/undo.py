"""Undo and redo of a session: restores files, hides messages, and removes them for good after the next prompt.

A session has one undo at a time (`SessionActor.undo_lock`), and none while a turn runs. Only files that the undone steps changed
are written; other changes in the directory stay. The state before an undo is a snapshot too, so nothing is lost. A failure is
shown to clients as a toast, and recorded as a `notice`.
"""

from __future__ import annotations

import structlog

from shim.host.git.snapshot import Snapshots, diffs_between
from shim.lib.errors import InvalidRequest, MessageNotFound, PartNotFound, SessionBusy, ShimError
from shim.sessions.index.manager import SessionManager
from shim.sessions.session.actor import SessionActor
from shim.sessions.transfer.fork import up_to
from shim.sessions.undo import undo_plan as plan
from universal.lib.diffs import FileDiff
from universal.session.model import Session
from universal.session.values import SessionRecord

log = structlog.get_logger()

NAMES_SHOWN = 5


async def revert(
    manager: SessionManager, session_id: str, message_id: str, part_id: str | None, *, files: bool = True
) -> SessionRecord:
    """Undo from a message (or a part of it) on, and return the record. `files`: whether files are restored too.

    Raises NotFound, SessionBusy, InvalidRequest.
    """
    actor = await manager.actor(session_id)
    session = actor.main.session
    async with actor.undo_lock:
        _need_idle(actor)
        point = plan.point_of(session, message_id, part_id)
        if point is None:
            if message_id in session.messages:
                raise PartNotFound(part_id)
            raise MessageNotFound(session_id, message_id)
        files_before = plan.files_at(session, point)
        info = {"messageID": point.message_id, **({"partID": point.part_id} if point.part_id else {})}
        if not files:
            await _leave_files(manager, actor, info)
            return session.record
        await manager.deps.config_refresh(actor.directory)
        trees = manager.deps.snapshots(actor.directory)
        if trees is None or session.snapshots.first is None:
            actor.main.status("revert", revert=info, diffs=[])
            actor.main.notify_changed()
            why = "snapshots are switched off in opencode.json" if trees is None else "there are no snapshots of this session"
            actor.main.status("notice", f"The messages are undone, but no files were put back: {why}.")
            return session.record
        now, redo_tree = await _restore(actor, trees, files_before)
        after = await trees.track(actor.directory)
        diff = await trees.patch(actor.directory, redo_tree, after)
        diffs = await diffs_between(trees, actor.directory, after, redo_tree, sorted(files_before))
        actor.main.status(
            "revert", revert={**info, "snapshot": redo_tree, "diff": diff}, after=after, diffs=[diff.to_json() for diff in diffs]
        )
        actor.main.notify_changed()
        log.info("session.reverted", session_id=session_id, files=len(files_before), before=now)
    return session.record


async def _leave_files(manager: SessionManager, actor: SessionActor, info: dict[str, str]) -> None:
    """Undo the messages alone. Files that an earlier undo restored return to their state before it, as in OpenCode."""
    trees = manager.deps.snapshots(actor.directory)
    if trees is not None and has_put_files_back(actor.main.session):
        await _restore(actor, trees, {})
    actor.main.status("revert", revert=info, diffs=[])
    actor.main.notify_changed()


def has_put_files_back(session: Session) -> bool:
    """Whether the pending undo has restored files, or found nothing to restore."""
    return session.record.revert is not None and session.record.revert.snapshot is not None


async def unrevert(manager: SessionManager, session_id: str) -> SessionRecord:
    """Take back the pending undo, if there is one, and return the record. Raises NotFound, SessionBusy, InvalidRequest."""
    actor = await manager.actor(session_id)
    session = actor.main.session
    async with actor.undo_lock:
        _need_idle(actor)
        if plan.pending(session) is None:
            return session.record
        await manager.deps.config_refresh(actor.directory)
        trees = manager.deps.snapshots(actor.directory)
        if trees is not None and has_put_files_back(session):
            await _restore(actor, trees, {})
        actor.main.status("revert", revert=None)
        actor.main.notify_changed()
        log.info("session.unreverted", session_id=session_id)
    return session.record


def has_undone(actor: SessionActor) -> bool:
    """Whether messages are undone that can still be taken back, or something is undone at this moment."""
    return actor.main.session.record.revert is not None or actor.undo_lock.locked()


async def settle(manager: SessionManager, actor: SessionActor) -> None:
    """Remove the undone messages for good before a prompt, also from the agent's memory.

    It is the last await before the prompt is accepted. Raises NotFound, and Conflict if the session was ended meanwhile.
    """
    if has_undone(actor):
        await _forget_undone(manager, actor)
    actor.main.require_open()


async def _forget_undone(manager: SessionManager, actor: SessionActor) -> None:
    session = actor.main.session
    async with actor.undo_lock:
        point = plan.pending(session)
        if point is None or actor.main.machine.busy:
            return
        messages, parts = plan.removed_items(session, point)
        diffs = await _session_diffs(manager, actor, frozenset(messages))
        rewound = await _rewind(manager, actor, messages, point)
        touched = messages or [point.message_id]
        files = has_put_files_back(session)
        actor.undo_notes.add(session, touched, whole=point.part_id is None, files=files, leave_out=rewound)
        actor.main.status(
            "revert", revert=None, messages=messages, parts=[list(p) for p in parts], diffs=[diff.to_json() for diff in diffs]
        )
        actor.main.notify_changed()


async def _rewind(manager: SessionManager, actor: SessionActor, messages: list[str], point: plan.Point) -> frozenset[str]:
    """Rewind the conversations of agents that can do it, and return their names. Others get a note."""
    agents = {name for id_ in messages for name in actor.main.session.messages.known_by(id_)}
    specs = [agent.spec for name in agents if (agent := manager.deps.agents.get(name)) is not None]
    able = [spec.name for spec in specs if spec.abilities.rewinds]
    if point.part_id is not None or not able:
        return frozenset()
    await manager.deps.store.flush()
    events = up_to(await manager.deps.store.events(actor.main.id), actor.main.id, point.message_id)
    for name in able:
        at, later = plan.anchor_in(events, name)
        native = actor.native.get(name)
        if native is not None and at:
            native.resume_at = at
        else:  # nothing of its conversation stays, so it begins anew
            actor.native.pop(name, None)
        actor.main.session.messages.forget(name, later)  # messages that it forgets too are sent as text
        log.info("session.rewound", session_id=actor.main.id, agent=name, at=at)
    actor.reap()
    return frozenset(able)


def _need_idle(actor: SessionActor) -> None:
    if actor.main.machine.busy:
        raise SessionBusy(actor.main.id)


async def _restore(actor: SessionActor, trees: Snapshots, files_before: dict[str, str]) -> tuple[str, str]:
    """Restore files to their trees, and those of an earlier undo to their state before it.

    Out: the tree before this, and the tree that a redo restores. Raises InvalidRequest if it cannot be done.
    """
    session, directory = actor.main.session, actor.directory
    old = plan.pending(session)
    try:
        now = await trees.track(directory)
        redo_tree = (session.record.revert.snapshot if session.record.revert is not None else None) or now
        if old is not None:
            again = plan.files_at(session, old)
            await _say_replaced(actor, trees, now, {*again, *files_before})
            files_before = {**dict.fromkeys(again, redo_tree), **files_before}
        problems = await trees.restore(directory, files_before)
    except ShimError as error:
        raise InvalidRequest(
            f"The files cannot be put back, and nothing was changed: {error} Snapshots are kept for a limited time, and are "
            "switched off where the log says snapshot.off. The messages can still be removed one by one."
        ) from error
    if problems:
        log.warning("session.revert_incomplete", session_id=actor.main.id, problems=problems)
        actor.main.status("notice", " ".join(problems[:NAMES_SHOWN]))
    return now, redo_tree


async def _say_replaced(actor: SessionActor, trees: Snapshots, now: str, names: set[str]) -> None:
    """Tell the person that edits of restored files were replaced, as in OpenCode, and are not lost."""
    after = actor.main.session.snapshots.restored
    edited = sorted(names.intersection(await trees.changed_files(actor.directory, after, now))) if after else []
    if edited:
        log.warning("session.edits_replaced", session_id=actor.main.id, files=edited, kept_in=now)
        shown = ", ".join(edited[:NAMES_SHOWN]) + (" ..." if len(edited) > NAMES_SHOWN else "")
        actor.main.status("notice", f"Changed since the undo, and replaced now: {shown}. Your version is kept as tree {now}.")


async def _session_diffs(manager: SessionManager, actor: SessionActor, removed: frozenset[str]) -> list[FileDiff]:
    session = actor.main.session
    await manager.deps.config_refresh(actor.directory)
    trees, first = manager.deps.snapshots(actor.directory), session.snapshots.first
    names = sorted(plan.names_in(session, removed))
    if trees is None or first is None or not names:
        return []
    try:
        return await diffs_between(trees, actor.directory, first, await trees.track(actor.directory), names)
    except ShimError as error:
        log.warning("snapshot.failed", session_id=actor.main.id, error=str(error))
        return []
