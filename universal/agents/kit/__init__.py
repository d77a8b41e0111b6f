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

from universal.agents.kit.asks import PLAN_QUESTION as PLAN_QUESTION
from universal.agents.kit.asks import Answers as Answers
from universal.agents.kit.asks import Ask as Ask
from universal.agents.kit.asks import OpenAsks as OpenAsks
from universal.agents.kit.asks import form_content as form_content
from universal.agents.kit.asks import form_questions as form_questions
from universal.agents.kit.asks import plan_question as plan_question
from universal.agents.kit.asks import read_question as read_question
from universal.agents.kit.codec import HANDSHAKE as HANDSHAKE
from universal.agents.kit.codec import HANDSHAKE_S as HANDSHAKE_S
from universal.agents.kit.codec import BaseCodec as BaseCodec
from universal.agents.kit.codec import Handlers as Handlers
from universal.agents.kit.codec import LineCodec as LineCodec
from universal.agents.kit.codec import await_handshake as await_handshake
from universal.agents.kit.codec import by_reason as by_reason
from universal.agents.kit.codec import end_handshake as end_handshake
from universal.agents.kit.codec import handshake_failed as handshake_failed
from universal.agents.kit.codec import write as write
from universal.agents.kit.context import Context as Context
from universal.agents.kit.context import add_usage as add_usage
from universal.agents.kit.context import api_error as api_error
from universal.agents.kit.context import error_data as error_data
from universal.agents.kit.context import error_fact as error_fact
from universal.agents.kit.context import is_context_full as is_context_full
from universal.agents.kit.context import make_error as make_error
from universal.agents.kit.ends import ASK_S as ASK_S
from universal.agents.kit.ends import END as END
from universal.agents.kit.ends import END_S as END_S
from universal.agents.kit.ends import Sign as Sign
from universal.agents.kit.ends import Watch as Watch
from universal.agents.kit.http import HttpCodec as HttpCodec
from universal.agents.kit.http import WatchedCodec as WatchedCodec
from universal.agents.kit.items import ABANDONED as ABANDONED
from universal.agents.kit.items import INTERRUPTED as INTERRUPTED
from universal.agents.kit.items import Call as Call
from universal.agents.kit.items import DeltaKind as DeltaKind
from universal.agents.kit.items import Items as Items
from universal.agents.kit.items import Part as Part
from universal.agents.kit.items import PartKind as PartKind
from universal.agents.kit.items import Result as Result
from universal.agents.kit.items import call_item as call_item
from universal.agents.kit.items import contents as contents
from universal.agents.kit.items import dumps as dumps
from universal.agents.kit.items import end_status as end_status
from universal.agents.kit.items import image as image
from universal.agents.kit.items import images_of as images_of
from universal.agents.kit.items import message_item as message_item
from universal.agents.kit.items import note_refusal as note_refusal
from universal.agents.kit.items import output_part as output_part
from universal.agents.kit.items import result_item as result_item
from universal.agents.kit.items import title_of as title_of
from universal.agents.kit.prompts import attachment_text as attachment_text
from universal.agents.kit.prompts import attachment_url as attachment_url
from universal.agents.kit.prompts import reminder as reminder
from universal.agents.kit.speech import Speech as Speech
