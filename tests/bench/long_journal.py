"""Builds a journal of any length from one real turn of the agent, which is repeated."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from shim.lib.clock import from_rfc3339, rfc3339

READ = "SELECT sequence, event_id, time, type, source, body, raw, first FROM event WHERE session_id = ? ORDER BY sequence"
ADD = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
STEP_MS = 3
"""Between two events."""


def repeat_last_turn(path: Path, session: str, times: int) -> int:
    """Write the session's last turn so many times more into the database of a stopped server; how many events it has then.

    Ids are new ones each time; times go on. What a client gave its message as ids is left out, so that they are made anew.
    """
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute(READ, (session,)).fetchall()
        first = max(at for at, row in enumerate(rows) if _is_prompt(row))
        turn = [
            (event_id, type_, source, _without_ids(body), raw, 0 if begin is None else sequence - begin)
            for sequence, event_id, _, type_, source, body, raw, begin in rows[first:]
        ]  # the last cell: how many events a row of several has before its last one
        ids = sorted(set(re.findall(r'"(?:item_id|turn_id)":"([^"]+)"', "".join(body for _, _, _, body, _, _ in turn))))
        known = re.compile("|".join(map(re.escape, ids)))
        sequence, now = rows[-1][0], from_rfc3339(rows[-1][2]) - times * len(turn) * STEP_MS
        db.execute("UPDATE event SET time = ? WHERE session_id = ?", (rfc3339(now), session))  # nothing is of the future
        for table in ("checkpoint", "checkpoint_page"):  # they say what the journal said before
            db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session,))
        for time in range(times):

            def rename(match: re.Match[str], mark: str = f"-{time}") -> str:
                return match[0] + mark

            new: list[tuple[Any, ...]] = []
            for event_id, type_, source, body, raw, before in turn:
                sequence, now = sequence + before + 1, now + STEP_MS
                begin = sequence - before if before else None
                body = known.sub(rename, body)
                new.append((session, sequence, f"{event_id}-{time}", rfc3339(now), type_, source, body, raw, begin))
            db.executemany(ADD, new)
        return sequence


def _is_prompt(row: tuple[Any, ...]) -> bool:
    item = json.loads(row[5])["data"].get("item") or {}
    return row[3] == "item.completed" and item.get("kind") == "message" and item.get("role") == "user"


def _without_ids(body: str) -> str:
    value = json.loads(body)
    given = ((value["data"].get("item") or {}).get("metadata") or {}).get("opencode")
    if given:
        given["message_id"] = None
        given["parts"] = [{key: one for key, one in part.items() if key != "id"} for part in given.get("parts") or ()]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
