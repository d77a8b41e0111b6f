"""Logins of ACP agents: which one is answered by the environment, and what a person is told to do for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import AGENT, OWN, Talk
from universal.agents import kit
from universal.agents.acp.codec import AcpCodec
from universal.agents.acp.logins import environment_method, login_hint, program_of
from universal.codec import Fact, Interrupt, Prompt, Stop
from universal.events import ErrorData
from universal.turn import Input

REFUSED = {"code": -32000, "message": "Authentication required"}
VARS = {"id": "codex-api-key", "type": "env_var", "name": "Use CODEX_API_KEY", "vars": [{"name": "CODEX_API_KEY"}]}
TEXT = {"id": "openai", "name": "Use OpenAI API key", "description": "Requires the `OPENAI_API_KEY` environment variable"}
KEY = {"id": "api-key", "name": "API Key", "description": "Use an API key to authenticate"}
CHATGPT = {"id": "chat-gpt", "name": "ChatGPT", "description": "Use ChatGPT to authenticate"}
TERMINAL = {"id": "login", "type": "terminal", "name": "Launch it with MY_KEY", "args": ["--terminal-login"]}
COMMAND = {"id": "opencode-login", "name": "Login with opencode", "description": "Run `opencode auth login` in the terminal"}
TWO = {"id": "two", "type": "env_var", "vars": [{"name": "A_URL"}, {"name": "A_KEY"}, {"name": "A_ORG", "optional": True}]}


@pytest.mark.parametrize(
    ("methods", "variables", "keys", "chosen"),
    [
        ([VARS], ["CODEX_API_KEY"], [], "codex-api-key"),
        ([VARS], ["OPENAI_API_KEY"], ["OPENAI_API_KEY"], ""),
        ([CHATGPT, TEXT], ["OPENAI_API_KEY"], [], "openai"),
        ([TEXT], [], ["OPENAI_API_KEY"], ""),
        ([KEY, CHATGPT], ["OPENAI_API_KEY"], ["OPENAI_API_KEY"], "api-key"),
        ([KEY, CHATGPT], ["SOME_API_KEY"], [], ""),  # whose key it is, nobody knows
        ([CHATGPT], ["OPENAI_API_KEY"], ["OPENAI_API_KEY"], ""),  # a browser opens
        ([TERMINAL], ["MY_KEY"], ["MY_KEY"], ""),
        ([COMMAND], ["OPENAI_API_KEY"], ["OPENAI_API_KEY"], ""),
        ([TWO], ["A_KEY"], [], ""),
        ([TWO], ["A_KEY", "A_URL"], [], "two"),
        ([{"name": "M_KEY"}, 3, None], ["M_KEY"], [], ""),
        (None, ["M_KEY"], [], ""),
    ],
)
def test_a_login_is_chosen_that_the_environment_answers(methods: Any, variables: list[str], keys: list[str], chosen: str) -> None:
    assert environment_method(methods, {"EMPTY_KEY": "", **dict.fromkeys(variables, "x")}, keys) == chosen


@pytest.mark.parametrize(
    ("methods", "hint"),
    [
        ([], "Log in to Mine with its own program (`agent.py`) in a terminal"),
        ([TERMINAL], "Run `python3 /opt/agent.py --terminal-login` in a terminal to log in to Mine"),
        ([COMMAND], "Run `opencode auth login` in a terminal to log in to Mine"),
        ([VARS], "or give it CODEX_API_KEY in this server's settings: env = { CODEX_API_KEY ="),
        (
            [{"id": "c", "_meta": {"terminal-auth": {"command": "claude", "args": ["/login"]}}}],
            "Run `claude /login` in a terminal to log in to Mine",
        ),
    ],
)
def test_the_hint_names_the_agent_and_its_own_login(methods: Any, hint: str) -> None:
    told = login_hint("mine", "Mine", ("python3", "/opt/agent.py"), methods)
    assert hint in told
    assert "[agents.mine]" in told
    assert "`python3`" not in told


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("/usr/bin/python3.12", "-u", "/x/agent.py", "--acp"), "agent.py"),
        (("node", "/x/dist/cli.js"), "cli.js"),
        (("npx", "-y", "@x/agent"), "npx @x/agent"),
        (("/opt/my-agent", "--acp"), "my-agent"),
        (("python3",), "python3"),
    ],
)
def test_a_program_is_not_its_interpreter(command: tuple[str, ...], program: str) -> None:
    assert program_of(command) == program


def refused_talk(*methods: Any, **variables: str) -> Talk:
    """An agent that wants a login before it begins a session, and a prompt that waits."""
    codec = AcpCodec(counting_ids(), replace(OWN, command=("python3", "/opt/agent.py")))
    talk = Talk(codec).launch(environment=variables)
    talk.send(Prompt("p", "hi"))
    talk.answer("initialize", {**AGENT, "authMethods": list(methods)})
    talk.answer("session/new", error=REFUSED)
    return talk


def test_a_login_from_the_environment_is_made_and_the_session_asked_for_again() -> None:
    talk = refused_talk(CHATGPT, TEXT, OPENAI_API_KEY="k")
    assert talk.written_lines()[-1]["params"] == {"methodId": "openai"}
    talk.answer("authenticate", {})
    assert talk.methods()[-1] == "session/new"
    talk.answer("session/new", {"sessionId": "s"})
    assert (talk.methods()[-1], talk.errors()) == ("session/prompt", [])


@pytest.mark.parametrize("accepted", [True, False])
def test_a_login_is_tried_once(accepted: bool) -> None:
    talk = refused_talk(TEXT, OPENAI_API_KEY="k")
    if accepted:
        talk.answer("authenticate", {})
        talk.answer("session/new", error=REFUSED)
    else:
        talk.answer("authenticate", error={"code": -32603, "message": "The key is wrong"})
    assert talk.methods().count("authenticate") == 1
    assert talk.errors() == ["authentication_failed"]
    [error] = [out.data for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ErrorData)]
    assert ("The key is wrong" in error.message) is not accepted
    assert any(isinstance(out, Stop) for out in talk.outputs)


def refused_prompt() -> Talk:
    """An agent that begins a session, and wants a login for the first prompt."""
    codec = AcpCodec(counting_ids(), replace(OWN, command=("python3", "/opt/agent.py")))
    talk = Talk(codec).launch(environment={"OPENAI_API_KEY": "k"})
    talk.answer("initialize", {**AGENT, "authMethods": [TEXT]})
    talk.answer("session/new", {"sessionId": "s"})
    talk.send(Prompt("p", "hi"))
    talk.answer("session/prompt", error=REFUSED)
    return talk


def test_a_prompt_that_wants_a_login_is_sent_again_after_it() -> None:
    talk = refused_prompt()
    assert (talk.methods()[-1], talk.signals()) == ("authenticate", [])
    talk.answer("authenticate", {})
    assert talk.methods()[-1] == "session/prompt"
    talk.chunk("Well")
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    assert (talk.signals(), talk.errors()) == ([(Input.DONE, False)], [])


@pytest.mark.parametrize("answer", ["refused login", "refused again", "silence", "interrupt"])
def test_a_prompt_that_wants_a_login_ends_once_without_it(answer: str) -> None:
    talk = refused_prompt()
    match answer:
        case "refused login":
            talk.answer("authenticate", error={"code": -32603, "message": "The key is wrong"})
        case "refused again":
            talk.answer("authenticate", {})
            talk.answer("session/prompt", error=REFUSED)
        case "silence":
            (stop,) = [out for out in talk.run_out(kit.HANDSHAKE) if isinstance(out, Stop)]
            assert "authenticate" in (stop.error or {})["message"]
            return
        case _:
            talk.send(Interrupt())
            assert talk.signals() == [(Input.FAILED, True)]
            return
    assert (talk.signals(), talk.errors()) == ([(Input.FAILED, False)], ["authentication_failed"])
    assert talk.methods().count("authenticate") == 1


def test_the_hint_names_a_login_that_needs_a_person() -> None:
    talk = refused_talk(CHATGPT, TERMINAL, OPENAI_API_KEY="k")
    assert "authenticate" not in talk.methods()
    [error] = [out.data for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ErrorData)]
    assert "Run `python3 /opt/agent.py --terminal-login` in a terminal to log in to Own" in (error.details or {})["hint"]
