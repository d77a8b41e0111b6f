"""The kept JSON of a message is what a new rendering would give, after each event of a session."""

from __future__ import annotations

import pytest

from shim.faces.opencode1 import read
from shim.faces.opencode1.routes.message import EncodedMessages
from shim.http import wire_json
from shim.lib.clock import from_rfc3339
from tests.support.opencode2_story import Story, synthetic_stories
from universal.session.messages import Message
from universal.session.reducer import Reducer

STORIES = synthetic_stories()


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_a_kept_message_is_what_a_rendering_gives_after_each_event(number: int) -> None:
    story, encoded = STORIES[number], EncodedMessages()
    reducer = Reducer(story.id, "mock")
    for event in story.journal:
        reducer.load(event, from_rfc3339(event.time))
        for message in reducer.session.messages.values():
            assert encoded.encode(message, story.id) == wire_json.dumps(read.message(message, story.id))


def answer_message() -> Message:
    """A complete answer."""
    story = Story()
    story.turn("prompt", "Hi.")
    return list(story.reducer.session.messages.values())[-1]


def test_a_message_that_did_not_change_is_rendered_once() -> None:
    encoded, message = EncodedMessages(), answer_message()
    assert encoded.encode(message, "ses_a") is encoded.encode(message, "ses_a")
    assert b"ses_b" in encoded.encode(message, "ses_b")


def test_a_growing_message_is_rendered_each_time() -> None:
    story, encoded = Story(), EncodedMessages()
    story.prompt("prompt")
    item = story.message()
    story.delta(item, "one ")
    message = list(story.reducer.session.messages.values())[-1]
    assert b"one " in encoded.encode(message, story.id)
    story.delta(item, "two")
    assert b"one two" in encoded.encode(message, story.id)


def test_the_least_recently_used_messages_are_removed() -> None:
    message = answer_message()
    size = len(EncodedMessages().encode(message, "ses_a"))
    encoded = EncodedMessages(2 * size)
    first, second = encoded.encode(message, "ses_a"), encoded.encode(message, "ses_b")
    assert encoded.encode(message, "ses_a") is first
    encoded.encode(message, "ses_c")
    assert encoded.encode(message, "ses_a") is first
    assert encoded.encode(message, "ses_b") is not second


def test_a_message_over_the_limit_is_not_kept() -> None:
    encoded, message = EncodedMessages(10), answer_message()
    assert encoded.encode(message, "ses_a") is not encoded.encode(message, "ses_a")
