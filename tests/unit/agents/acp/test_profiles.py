"""What single agents do differently, as their real programs said it: Copilot CLI 1.0.102, Qwen Code 0.24.4, Gemini CLI 0.61.0."""

from __future__ import annotations

from typing import Any

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import AGENT, Talk
from universal.agents.acp.codec import AcpCodec
from universal.agents.acp.profiles import PROFILES
from universal.codec import Fact, PermissionReply, Prompt, Signal, Stop
from universal.events import EventType, ItemData, PermissionData
from universal.items import ItemKind, TextPart, ToolResultPart
from universal.launch import LaunchOptions
from universal.permissions import Rule


def talk(name: str) -> Talk:
    profile = next(profile for profile in PROFILES if profile.name == name)
    found = Talk(AcpCodec(counting_ids(), profile)).ready(AGENT)
    found.send(Prompt("p", "hi"))
    return found


def chunk(found: Talk, text: str, **more: Any) -> None:
    found.update("agent_message_chunk", content={"type": "text", "text": text}, **more)


def usage(found: Talk) -> list[Any]:
    """Tokens in and out of each turn."""
    ends = [out.metadata or {} for out in found.outputs if isinstance(out, Signal)]
    return [(end["usage"]["input"], end["usage"]["output"]) for end in ends if "usage" in end]


def items(found: Talk, kind: ItemKind) -> list[Any]:
    done = [out.data for out in found.outputs if isinstance(out, Fact) and out.type is EventType.ITEM_COMPLETED]
    return [data.item for data in done if isinstance(data, ItemData) and data.item.kind is kind]


def test_copilot_tells_sums_of_usage() -> None:
    found = talk("copilot")
    for total in (120, 360):
        chunk(found, "hi")
        told = {"inputTokens": total, "outputTokens": total // 6, "totalTokens": total + total // 6}
        found.answer("session/prompt", {"stopReason": "end_turn", "usage": told})
        found.send(Prompt("p2", "again"))
    assert usage(found) == [(120, 20), (240, 40)]


def test_copilot_tells_errors_as_text() -> None:
    found = talk("copilot")
    chunk(found, "Error: 400 scripted failure")
    found.answer("session/prompt", {"stopReason": "end_turn"})
    assert found.errors() == ["model_error"]
    error = next(out.error for out in found.outputs if isinstance(out, Signal))
    assert error is not None
    assert (error["message"], error["details"]["status_code"]) == ("scripted failure", 400)
    found.send(Prompt("p2", "again"))
    chunk(found, "Error: is what ")
    chunk(found, "it said")
    found.answer("session/prompt", {"stopReason": "end_turn"})
    assert found.errors() == ["model_error"]


def test_copilots_exit_codes_and_what_it_adds_to_output() -> None:
    found = talk("copilot")
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "run", "kind": "execute", "rawInput": {"command": "exit 3"}}
    found.say({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": call}})
    text = "oh\n<shellId: 0 completed with exit code 3>"
    raw = {"content": text, "contents": [{"type": "shell_exit", "exitCode": 3}]}
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    found.update("tool_call_update", toolCallId="c", status="completed", content=content, rawOutput=raw)
    (result,) = items(found, ItemKind.TOOL_RESULT)
    assert result.content[0] == ToolResultPart(call_id="c", output="oh")
    assert result.metadata["exit_code"] == 3


def test_qwen_tells_usage_of_each_step_in_an_empty_chunk() -> None:
    found = talk("qwen")
    for _ in range(2):
        chunk(found, "hi")
        chunk(found, "", _meta={"usage": {"inputTokens": 120, "outputTokens": 20, "totalTokens": 140}})
    found.answer("session/prompt", {"stopReason": "end_turn"})
    assert usage(found) == [(240, 40)]


def test_gemini_tells_usage_as_quota_and_remarks_on_modes_as_text() -> None:
    found = talk("gemini")
    chunk(found, "[MODE_UPDATE] plan")
    chunk(found, "hi")
    counts = {"token_count": {"input_tokens": 120, "output_tokens": 20}}
    found.answer("session/prompt", {"stopReason": "end_turn", "_meta": {"quota": counts}})
    assert usage(found) == [(120, 20)]
    assert [item.content for item in items(found, ItemKind.MESSAGE)] == [(TextPart(text="hi"),)]


def test_gemini_says_nothing_more_of_a_call_that_was_refused() -> None:
    found = talk("gemini")
    told = {"toolCallId": "c", "title": "ls", "kind": "execute", "status": "pending"}
    options = [{"optionId": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
    found.request(7, "session/request_permission", toolCall=told, options=options)
    asked = next(out.data for out in found.outputs if isinstance(out, Fact) and isinstance(out.data, PermissionData))
    found.send(PermissionReply(asked.permission_id, "reject"))
    assert not items(found, ItemKind.TOOL_RESULT)
    chunk(found, "Then not.")
    (result,) = items(found, ItemKind.TOOL_RESULT)
    assert result.status == "failed"
    assert not (result.metadata or {}).get("interrupted")


def test_pi_acps_preamble_is_no_answer() -> None:
    found = talk("pi-acp")
    chunk(found, "pi v0.87.1\n---\n\n---\nNew version available\n")
    chunk(found, "hi")
    found.answer("session/prompt", {"stopReason": "end_turn"})
    assert [item.content for item in items(found, ItemKind.MESSAGE)] == [(TextPart(text="hi"),)]


def test_copilots_remarks_are_no_answer() -> None:
    found = talk("copilot")
    for text in ("request failed due to a transient API error", "request failed due to a transient API error"):
        chunk(found, f"Info: {text}. Retrying...")
    chunk(found, "Warning: 1 tool call(s) had no recorded result at resume. Files may be changed.")
    chunk(found, "Info: Operation cancelled by user")
    chunk(found, "Info: Retrying... is what it ")
    chunk(found, "Warning: said")
    chunk(found, "Info: once more. Retrying...")
    found.answer("session/prompt", {"stopReason": "end_turn"})
    assert [item.content for item in items(found, ItemKind.MESSAGE)] == [
        (TextPart(text="Info: Retrying... is what it Warning: said"),)
    ]
    told = [(item.content[0].label, item.metadata.get("attempt")) for item in items(found, ItemKind.STATUS)]
    assert told == [("retry", 1), ("retry", 2), ("notice", None), ("retry", 1)]


def test_kilo_is_started_to_ask_for_what_rules_are_about() -> None:
    profile = next(profile for profile in PROFILES if profile.name == "kilo")
    rules = (Rule("edit", "*", "deny"),)

    def variables(rules: tuple[Rule, ...], own: str = "") -> list[str]:
        options = LaunchOptions("/bin/kilo", "/p", rules=rules, environment={"KILO_CONFIG_CONTENT": own})
        return list(AcpCodec(counting_ids(), profile).launch(options).env)

    assert variables(rules) == variables(()) == ["KILO_CONFIG_CONTENT"], "without rules it is started without its question tool"
    assert variables(rules, "not to be read") == []
    found = Talk(AcpCodec(counting_ids(), profile)).launch(rules=rules)
    for same, stops in ((Rule("edit", "a", "ask"), False), (Rule("bash", "*", "deny"), True)):
        found.outputs.clear()
        found.send(Prompt("p", "hi", rules=(same,)))
        assert [isinstance(out, Stop) for out in found.outputs].count(True) == stops


def test_a_missing_login_says_what_to_do() -> None:
    profile = next(profile for profile in PROFILES if profile.name == "copilot")
    found = Talk(AcpCodec(counting_ids(), profile)).launch()
    found.answer("initialize", {**AGENT, "authMethods": [{"id": "copilot-login", "name": "Log in with Copilot CLI"}]})
    found.send(Prompt("p", "hi"))
    found.say({"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "Authentication required"}})
    signal = next(out for out in found.outputs if isinstance(out, Signal))
    assert signal.error is not None
    assert signal.error["message"] == "Authentication required (ways to log in: Log in with Copilot CLI)"
    assert signal.error["details"]["hint"].startswith("Run `copilot login` in a terminal")
