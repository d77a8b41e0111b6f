"""Shared parts of all codecs. Packages that add an agent may use them too.

codec    BaseCodec, LineCodec: read lines, stamp facts with the agent's id of the conversation, count
http     HttpCodec, WatchedCodec: make requests and read answers and events, for agents that are HTTP servers
context  Context: ids, counts, and facts about status, errors and unparsed lines
items    Items, Part, Call: build the items of the universal schema
speech   Speech: messages, tool calls and results of an agent with a simple protocol
forms    form_questions, form_content: forms of MCP servers as questions
prompts  attachment_text, attachment_url, reminder: what goes with a prompt
asks     Ask, OpenAsks: open permissions and questions, each resolved exactly once
opencode ServerCodec, ServerAsks: what OpenCode 1 and OpenCode 2 share (imported by its own name)
ends     Sign, Watch: signs of a turn's end, and whether an agent that can be asked still works
"""

from universal.agents.kit.asks import PLAN_QUESTION, Answers, Ask, OpenAsks, form_content, form_questions, plan_question
from universal.agents.kit.codec import (
    HANDSHAKE,
    HANDSHAKE_S,
    BaseCodec,
    Handlers,
    LineCodec,
    await_handshake,
    end_handshake,
    handshake_failed,
    write,
)
from universal.agents.kit.context import Context, add_usage, error_data, error_fact, is_context_full
from universal.agents.kit.ends import ASK_S, END, END_S, Sign, Watch
from universal.agents.kit.http import HttpCodec, WatchedCodec
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
    end_status,
    message_item,
    note_refusal,
    output_part,
    result_item,
    title_of,
)
from universal.agents.kit.prompts import attachment_text, attachment_url, reminder
from universal.agents.kit.speech import Speech

__all__ = [
    "ABANDONED",
    "ASK_S",
    "END",
    "END_S",
    "HANDSHAKE",
    "HANDSHAKE_S",
    "INTERRUPTED",
    "PLAN_QUESTION",
    "Answers",
    "Ask",
    "BaseCodec",
    "Call",
    "Context",
    "DeltaKind",
    "Handlers",
    "HttpCodec",
    "Items",
    "LineCodec",
    "OpenAsks",
    "Part",
    "PartKind",
    "Sign",
    "Speech",
    "Watch",
    "WatchedCodec",
    "add_usage",
    "attachment_text",
    "attachment_url",
    "await_handshake",
    "call_item",
    "contents",
    "dumps",
    "end_handshake",
    "end_status",
    "error_data",
    "error_fact",
    "form_content",
    "form_questions",
    "handshake_failed",
    "is_context_full",
    "message_item",
    "note_refusal",
    "output_part",
    "plan_question",
    "reminder",
    "result_item",
    "title_of",
    "write",
]
