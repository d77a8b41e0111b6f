"""What the codecs of all agents share. A package that adds an agent may use it too.

codec    BaseCodec, LineCodec: reading lines, stamping facts with the agent's id of the conversation, counts
context  Context: ids, counts, and facts about status, errors and lines that no rule knows
items    Items, Part, Call: the items of the universal schema, as codecs build them
speech   Speech: messages with their parts, tool calls and their results, for agents whose protocol is plain
asks     Ask, OpenAsks: open permissions and questions, each resolved exactly once
"""

from universal.agents.kit.asks import Answers, Ask, Decision, OpenAsks
from universal.agents.kit.codec import BaseCodec, Handlers, LineCodec
from universal.agents.kit.context import Context, add_usage, error_data, error_fact
from universal.agents.kit.items import (
    ABANDONED,
    INTERRUPTED,
    Call,
    DeltaKind,
    Items,
    Part,
    PartKind,
    call_item,
    contents,
    dumps,
    message_item,
    output_part,
    result_item,
)
from universal.agents.kit.speech import Speech

__all__ = [
    "ABANDONED",
    "INTERRUPTED",
    "Answers",
    "Ask",
    "BaseCodec",
    "Call",
    "Context",
    "Decision",
    "DeltaKind",
    "Handlers",
    "Items",
    "LineCodec",
    "OpenAsks",
    "Part",
    "PartKind",
    "Speech",
    "add_usage",
    "call_item",
    "contents",
    "dumps",
    "error_data",
    "error_fact",
    "message_item",
    "output_part",
    "result_item",
]
