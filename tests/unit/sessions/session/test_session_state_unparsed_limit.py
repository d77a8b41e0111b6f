"""Of a flood that no rule knows the beginning is kept, and how much it was."""

from __future__ import annotations

from structlog.testing import capture_logs

from shim.sessions.session.session_state import KEPT
from tests.support.scripted_model import World, ask
from universal.codec import Fact
from universal.events import EventType, UnparsedData


def unknown(number: int) -> Fact:
    data = UnparsedData(error="unknown kind of message", location=f"one stdout: {number}", raw_hash="0")
    return Fact(EventType.UNPARSED, data, raw={"number": number}, synthetic=True)


async def journal_notes(w: World, session: str) -> list[str]:
    """What the journal says of each, its turns' ends among them."""
    out: list[str] = []
    for event in await w.store.events(session):
        if isinstance(event.data, UnparsedData):
            out.append(f"{event.data.location}: {event.data.error}")
        elif event.type is EventType.TURN_ENDED:
            out.append("end")
    return out


async def test_the_first_are_kept_and_the_rest_counted_each_turn(w: World) -> None:
    session = w.session()
    with capture_logs() as logs:
        for more in (2, 0):
            await ask(w, session)
            agent = w.agent
            agent.says(*(unknown(number) for number in range(KEPT + more)))
            agent.text("done")
            agent.end_turn()
    kept = [f"one stdout: {number}: unknown kind of message" for number in range(KEPT)]
    total = f"one stdout: {KEPT + 1}: 2 more that no rule knows: counted, not kept"
    assert await journal_notes(w, session) == [*kept, total, "end", *kept, "end"]
    assert [(log["event"], log.get("dropped")) for log in logs if log["log_level"] == "warning"] == [
        ("agent.unparsed_too_much", None),
        ("agent.unparsed_total", 2),
    ]


async def test_unparsed_lines_between_turns_count_for_the_next(w: World) -> None:
    session = w.session()
    await ask(w, session)
    agent = w.agent
    agent.end_turn()
    agent.says(*(unknown(number) for number in range(KEPT + 5)))
    assert len(await journal_notes(w, session)) == 1 + KEPT
    await ask(w, session)
    agent.says(unknown(7))
    agent.end_turn()
    assert (await journal_notes(w, session))[-2:] == ["one stdout: 7: 6 more that no rule knows: counted, not kept", "end"]
