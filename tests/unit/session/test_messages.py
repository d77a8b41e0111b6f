"""Messages in pages: who knows them is kept beside the pages, and a message that may be changed opens its page."""

from __future__ import annotations

import pytest

from universal.session.messages import Message, Messages
from universal.session.pages import stored_page
from universal.session.value_codec import MESSAGES
from universal.session.values import ModelRef, Text, UserInfo

COUNT = 10


def id_of(number: int) -> str:
    return f"msg_{number:04}"


def message(number: int, *known_by: str) -> Message:
    text = Text(f"prt_{number:04}", f"text {number}")
    return Message(UserInfo(id_of(number), 100 * number, "build", ModelRef("mock", "m")), {text.id: text}, set(known_by))


def packed_messages(*known_by: str) -> Messages:
    messages = Messages.of(message(number, *known_by) for number in range(COUNT))
    messages.pack(MESSAGES, loose_count=2, page_size=3)
    return messages


def messages_in_store(messages: Messages) -> tuple[Messages, list[int]]:
    """The same with its pages in a store, and the numbers of pages that were read from it."""
    reads: list[int] = []
    bodies: dict[int, bytes] = {}

    def read(number: int, checksum: int) -> bytes:
        reads.append(number)
        return bodies[number]

    for number, page in enumerate(messages.pages, 1):
        page.number, bodies[number] = number, page.bytes()
    pages = [stored_page(MESSAGES, page.ref(), read) for page in messages.pages]
    return Messages.of(messages.loose_values(), pages), reads


def test_packing_changes_no_message() -> None:
    messages = packed_messages("mock")
    assert [page.size for page in messages.pages] == [3, 3]
    assert list(messages.values()) == [message(number, "mock") for number in range(COUNT)]


def test_a_message_that_was_got_may_be_changed() -> None:
    messages = packed_messages()
    got = messages[id_of(1)]
    got.parts.clear()
    got.known_by.add("mock")
    assert messages.peek(id_of(1)) is got
    messages.pack(MESSAGES, loose_count=2, page_size=3)
    again = messages.peek(id_of(1))
    assert again is not None and again is not got
    assert (again.parts, messages.known_by(id_of(1))) == ({}, {"mock"})


def test_a_look_opens_no_page() -> None:
    messages = packed_messages()
    assert messages.peek(id_of(1)) == message(1)
    assert messages.created_ms(id_of(1)) == 100
    assert list(messages.times()) == [(id_of(number), 100 * number) for number in range(COUNT)]
    assert all(page.values is None for page in messages.pages)


@pytest.mark.parametrize("number", [0, 4, 9])
def test_an_agent_learns_a_message_wherever_it_is(number: int) -> None:
    messages = packed_messages()
    looked_at = messages.peek(id_of(number))
    messages.learn(id_of(number), "mock")
    messages.learn("msg_other", "mock")
    assert messages.unknown_to("mock") == [id_of(other) for other in range(COUNT) if other != number]
    assert looked_at is not None and messages.peek(id_of(number)) == message(number, "mock")


@pytest.mark.parametrize("since", [None, 0, 400, 450, 900, 1_000])
def test_an_agent_forgets_what_came_since(since: int | None) -> None:
    messages = packed_messages("mock", "other")
    messages[id_of(1)].known_by.add("third")  # its page is open
    messages.forget("mock", since)
    gone = [id_of(number) for number in range(COUNT) if since is None or 100 * number >= since]
    assert messages.unknown_to("mock") == gone
    assert messages.unknown_to("other") == []


def test_agents_that_know_a_stored_page_are_found_without_reading_it() -> None:
    messages, reads = messages_in_store(packed_messages("mock", "other"))
    assert messages.unknown_to("mock") == []
    messages.forget("mock")
    messages.forget("mock", 0)
    assert reads == []
    assert messages.unknown_to("mock") == [id_of(number) for number in range(COUNT)]


def test_a_page_known_by_others_keeps_its_bytes() -> None:
    messages, _ = messages_in_store(packed_messages("mock"))
    messages.forget("mock")
    assert [page.number for page in messages.pages] == [1, 2]
    assert [page.ref().known for page in messages.pages] == [((3, ()),)] * 2


def test_runs_of_messages_with_the_same_agents_are_one() -> None:
    messages = packed_messages("mock")
    messages.learn(id_of(2), "other")
    assert messages.pages[0].ref().known == ((2, ("mock",)), (1, ("mock", "other")))


def test_a_copy_shares_messages_that_are_over() -> None:
    messages = packed_messages()
    running = message(COUNT)
    messages[id_of(COUNT)] = running
    copied = messages.copy()
    running.parts.clear()
    assert copied.peek(id_of(COUNT)) == message(COUNT)
    assert copied.peek(id_of(0)) == messages.peek(id_of(0))
