"""Which reads show that a person has opened a session, and that those of lists, bots and exports do not."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from shim.sessions.session.open_signs import CLIENTS, TOGETHER_MS, OpenSigns, Read

UNUSED: Any = None
PARTS: tuple[Read, ...] = ("messages", "todos", "diffs")


@pytest.mark.parametrize("order", list(permutations(PARTS)))
def test_a_tui_reads_all_parts_at_once(order: tuple[Read, ...]) -> None:
    signs = OpenSigns(UNUSED)
    assert [signs.note("tui", "s", read, at) for at, read in enumerate(order)] == [False, False, True]


def test_a_bot_that_reads_messages_again_and_again_gives_no_sign() -> None:
    signs = OpenSigns(UNUSED)
    assert not any(signs.note("bot", "s", "messages", at) for at in range(20))


def test_reads_that_lie_apart_give_no_sign() -> None:
    signs = OpenSigns(UNUSED)
    assert not any(signs.note("bot", "s", read, number * (TOGETHER_MS + 1)) for number, read in enumerate(PARTS))


def test_reads_of_several_clients_or_sessions_do_not_add_up() -> None:
    signs = OpenSigns(UNUSED)
    assert not any(signs.note(f"client {read}", "s", read, 0) for read in PARTS)
    assert not any(signs.note("client", f"session {read}", read, 0) for read in PARTS)


def test_the_number_of_clients_is_bounded() -> None:
    signs = OpenSigns(UNUSED)
    for number in range(CLIENTS * 3):
        signs.note(str(number), "s", "messages", 0)
    assert len(signs._reads) == CLIENTS
