"""OpenCode 2 as an agent: the one program of it that can be had, the "2.0 preview" `lildax` 1.18.18, against the scripted model.

It speaks an older form of the wire than 2.x and has no event for the end of a turn, so this shows less than a run of 2.x would.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support.bench import Bench, Watch, bench, nightly
from .support.places import ARCH, LILDAX
from .support.wire import Stream, texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def server() -> Iterator[Bench]:
    if not LILDAX.exists():
        pytest.skip(f"there is no lildax for {ARCH}")
    with bench("opencode2", config={"permission": {"bash": "ask"}}) as made:
        yield made


@pytest.fixture
def watch(server: Bench) -> Iterator[Watch]:
    server.place.reset()
    stream = Stream(server.api)
    yield Watch.on(server.api, stream)
    stream.close()
    assert server.unparsed_messages() == []


@pytest.mark.nightly
def test_a_turn_with_text(watch: Watch) -> None:
    at = watch.prompt("[scene:text] say hello")
    assert texts(watch.wait_for_answer(at)) == ["You said: say hello"]


@pytest.mark.parametrize("reply", ["once", *nightly("reject")])
def test_a_permission(server: Bench, watch: Watch, reply: str) -> None:
    at = watch.prompt("[scene:ask_bash:touch made.txt] make")
    asked = watch.wait("permission.asked", at)
    assert (asked["permission"], asked["patterns"]) == ("bash", ["touch made.txt"])
    server.api.post(f"/permission/{asked['id']}/reply", {"reply": reply})
    (call,) = tools(watch.wait_for_answer(at))
    assert (call["tool"], call["state"]["status"]) == ("bash", "completed" if reply == "once" else "error")
    assert (server.place.project / "made.txt").exists() == (reply == "once")


@pytest.mark.nightly
def test_an_interrupt_ends_the_turn_once(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:hang] wait")
    watch.wait("message.part.updated", at, lambda p: p["part"]["type"] == "text" and p["part"]["messageID"])
    server.api.post(f"/session/{watch.session}/abort")
    watch.wait_for_end(at)
    at = watch.prompt("[scene:text] say again")
    assert texts(watch.wait_for_answer(at)) == ["You said: say again"]


@pytest.mark.nightly
def test_the_conversation_goes_on_after_a_restart(server: Bench) -> None:
    session = Watch.on(server.api, Stream(server.api))
    session.wait_for_answer(session.prompt("[scene:text] say one"))
    session.stream.close()
    server.restart()
    again = Watch(server.api, Stream(server.api), session.session)
    at = again.prompt("[scene:text] say two")
    again.stream.idle(again.session, since=at, timeout_s=60)
    assert texts(server.api.messages(again.session)) == ["You said: say one", "You said: say two"]
    last = [request["body"] for request in server.model.requests() if request["kind"] == "chat"]
    assert any("say one" in str(body) and "say two" in str(body) for body in last), "the model was not sent the first prompt"
    again.stream.close()
