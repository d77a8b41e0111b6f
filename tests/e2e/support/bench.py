"""A test bench: a place, a scripted model, our server and its clients, and the checks after every turn."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from .agents import AGENTS
from .children import children_of, holders_in, processes_with, wait_for
from .places import ADOPTED, Place
from .scenes import CONFIG
from .servers import Model, Shim, configure
from .wire import TURN_S, Api, Json, Stream, brief, fold, session_of, texts, tools

DATABASE = "opencode-shim.db"
MOCK, CLAUDE, CLAUDE_OLD = "mock", "claude", "claude-2.1.197"
STOP_S = 8
MODELS_S = 120
EVENT_S = TURN_S * 2 / 3
"""Seconds that one event of a turn may take."""
QUIET_S = float(os.environ.get("E2E_QUIET_S", "0.6"))
"""Seconds of silence after an idle, in which a late event would be seen; `.ci/nightly` waits twice as long."""
GUARD = "/bin/sh -c exec 3<&0"
HOLDER = "/holder."
"""In the command line of a holder that waits for an agent."""
"""A shell that ends OpenCode's server when ours is gone stands before it."""


def nightly(*values: object) -> list[Any]:
    """Values of a parameter that only `make e2e-all` plays."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]


@dataclass
class Bench:
    """Our server with one agent on a fresh project; `restart()` keeps the project, the data and the port."""

    agent: str
    place: Place
    model: Model
    shim: Shim
    settings: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    _closers: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        agent: str,
        *,
        also: tuple[str, ...] = (),
        config: dict[str, object] | None = None,
        command: str = "serve",
        **settings: str,
    ) -> Bench:
        place = Place.make()
        configure(place, CONFIG if config is None else config)
        model = Model(place)
        shim = Shim(place, agent=agent, also=also, model=model, command=command, **settings)
        return cls(agent, place, model, shim, settings, also)

    @property
    def url(self) -> str:
        return self.shim.url

    @property
    def api(self) -> Api:
        return Api(self.url, self.place.project)

    @property
    def real(self) -> bool:
        """Not the mock."""
        return self.agent != MOCK

    def say(self, scene: str, mock: str) -> str:
        """The prompt for this agent: a scene of the scripted model, or a word of the mock."""
        return scene if self.real else mock

    def later(self, close: Callable[[], None]) -> None:
        self._closers.append(close)

    def agents(self) -> dict[int, str]:
        """The agents' processes that run for this server, each at the head of its own family: pid -> command line."""
        found = {pid: line for pid, line in children_of(self.shim.child.pid).items() if HOLDER not in line}
        for holder in holders_in(self.place.home / "data"):
            found |= children_of(holder)
        for guard in [pid for pid, line in found.items() if line.startswith(GUARD)]:
            del found[guard]
            found |= {pid: line for pid, line in children_of(guard).items() if not line.startswith("cat")}
        return found

    def models(self, provider: str | None = None) -> list[str]:
        """The models of the agent, its default first. Waits until it has told them itself."""
        name = provider or self.shim.provider

        def list_models() -> list[str]:
            offered = self.api.get("/provider")
            models = next((list(p["models"]) for p in offered["all"] if p["id"] == name), [])
            return sorted(models, key=lambda m: m != offered["default"].get(name)) if models != ["default"] else []

        return wait_for(list_models, MODELS_S, f"{name} does not tell its models")

    def unparsed_messages(self) -> list[str]:
        """What the journal has of messages of agents that nobody understood."""
        with closing(sqlite3.connect(f"file:{self.place.home / 'data' / DATABASE}?mode=ro", uri=True)) as journal:
            return [body for (body,) in journal.execute("SELECT body FROM event WHERE type = 'agent.unparsed'")]

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.shim.child.send(9)
            self.shim.child.wait(10)
        self.shim.close()
        again = {"port": self.shim.port, "command": self.shim.command, **self.settings}
        self.shim = Shim(self.place, agent=self.agent, also=self.also, model=self.model, **again)

    def close(self) -> None:
        """Ends everything. AssertionError if the server does not stop well, or leaves a process behind."""
        for close in reversed(self._closers):
            close()
        running = self.shim.child.process.poll() is None
        self.shim.child.send(2)
        code = self.shim.child.wait(STOP_S)
        root = str(self.place.root)
        try:
            wait_for(lambda: not processes_with(root), 3, lambda: f"left behind: {processes_with(root)}")
            assert not running or code == 0, f"the server ended with {code}:\n{self.shim.child.log()[-3000:]}"
            assert "Traceback" not in self.shim.child.log(), self.shim.child.log()[-6000:]
        finally:
            self.shim.close()
            self.model.close()
            self.place.remove()


other_wires = pytest.mark.parametrize("wire", ["/api", "/v1"])
"""OpenCode 2 and our own API, beside OpenCode 1.x, which most tests speak."""


@contextmanager
def bench(agent: str, **options: Any) -> Iterator[Bench]:
    made = Bench.open(agent, **options)
    try:
        yield made
    except BaseException:
        made.shim.close()  # the first failure is the one to see
        made.model.close()
        for close in reversed(made._closers):
            close()
        made.place.remove()
        raise
    made.close()


@dataclass
class Watch:
    """One session on a recorded stream."""

    api: Api
    stream: Stream
    session: str
    start: int = 0

    @classmethod
    def on(cls, api: Api, stream: Stream, **fields: Any) -> Watch:
        """A new session with these fields."""
        at = stream.mark()
        session = api.session(**fields)
        return cls(api, stream, session, at)

    def prompt(self, text: str, **fields: Any) -> int:
        """Sends a prompt; gives the position before it."""
        at = self.stream.mark()
        mode = AGENTS[ADOPTED[0]].mode if ADOPTED[0] else None
        self.api.prompt(self.session, text, **({"agent": mode} if mode else {}), **fields)
        return at

    def prompt_on(self, wire: str, text: str) -> int:
        """As `prompt`, by OpenCode 2 ("/api") or "/v1"."""
        at = self.stream.mark()
        body, path = ({"text": text}, "prompt") if wire == "/api" else ({"message": text}, "messages")
        self.api.post(f"{wire}{'/session/' if wire == '/api' else '/sessions/'}{self.session}/{path}", body)
        return at

    def answer_on(self, wire: str, label: str, since: int) -> None:
        """Answer the question that has come since then, by OpenCode 2 ("/api", where it is a form) or "/v1"."""
        asked = self.wait("question.asked", since)
        if wire == "/v1":
            self.api.post(f"/v1/sessions/{self.session}/questions/{asked['id']}/reply", {"answers": [[label]]})
            return
        (form,) = self.api.get(f"/api/session/{self.session}/form")["data"]
        (field,) = form["fields"]
        (value,) = [option["value"] for option in field["options"] if option["label"] == label]
        answer = {field["key"]: [value] if field["type"] == "multiselect" else value}
        self.api.post(f"/api/session/{self.session}/form/{form['id']}/reply", {"answer": answer})

    def wait(self, kind: str, since: int, want: Callable[[Json], object] = lambda _: True, timeout_s: float = EVENT_S) -> Json:
        """The first event of this session of a kind, whose properties are wanted."""

        def match(event: Json) -> bool:
            return event["type"] == kind and session_of(event) == self.session and bool(want(event["properties"]))

        return self.stream.wait(match, since=since, timeout_s=timeout_s)["properties"]

    def wait_text(self, text: str, since: int) -> None:
        """Until the assistant's text that this stream has seen since then holds `text`."""
        wait_for(lambda: text in "\n".join(texts(fold(self.events(), self.session))), 40, lambda: f"{text!r} does not come")

    def wait_tool(self, status: str, since: int) -> Json:
        """Until a tool call of this session is in a state; gives the part."""

        def want(properties: Json) -> bool:
            part = properties["part"]
            return part["type"] == "tool" and part["state"]["status"] == status

        return self.wait("message.part.updated", since, want)["part"]

    def events(self, since: int | None = None) -> list[Json]:
        return self.stream.of(self.session, self.start if since is None else since)

    def kinds(self, since: int) -> list[str]:
        """The kinds of events of a turn. Kilo has its title from a request of its own, which may end after the turn."""
        kinds = [event["type"] for event in self.events(since)]
        return [kind for kind in kinds if kind != "session.updated"] if ADOPTED[0] == "kilo-serve" else kinds

    def wait_for_end(self, since: int, *, idles: int = 1, timeout_s: float = TURN_S) -> list[Json]:
        """Waits for the end of the turn, then for silence, and checks what holds after every turn. Gives the messages."""
        self.stream.idle(self.session, since=since, timeout_s=timeout_s)
        self.stream.quiet(QUIET_S)
        return self.check(since, idles=idles)

    def at_rest(self, since: int) -> bool:
        """Whether what was prompted since then has ended."""
        kinds = self.kinds(since)
        return not self.stream.ended and self.session not in self.api.status() and kinds[-1:] in ([], ["session.idle"])

    def wait_for_answer(self, since: int) -> list[Json]:
        """As `wait_for_end`; gives the messages of this turn alone: what came after the last prompt."""
        messages = self.wait_for_end(since)
        prompts = [at for at, message in enumerate(messages) if message["info"]["role"] == "user"]
        return messages[prompts[-1] + 1 :]

    def check(self, since: int, *, idles: int = 1) -> list[Json]:
        turn = self.events(since)
        shown = "\n".join(brief(event) for event in turn[-30:])
        kinds = self.kinds(since)
        assert kinds.count("session.idle") == idles, f"{kinds.count('session.idle')} idles, not {idles}:\n{shown}"
        assert kinds[-1] == "session.idle", f"events after the last idle:\n{shown}"
        assert self.session not in self.api.status(), "still busy over HTTP"
        messages = self.api.messages(self.session)
        assert fold(self.events(), self.session) == messages, "HTTP and the folded stream differ"
        check_messages(messages)
        for path in ("/permission", "/question"):
            assert not [ask for ask in self.api.get(path) if ask["sessionID"] == self.session], f"{path} still lists an ask"
        return messages


def check_messages(messages: list[Json]) -> None:
    """What holds for a session at rest: nothing open, ids ascend, each answer has its prompt."""
    ids = [message["info"]["id"] for message in messages]
    assert ids == sorted(ids), ids
    prompts = {message["info"]["id"] for message in messages if message["info"]["role"] == "user"}
    for message in messages:
        info = message["info"]
        part_ids = [part["id"] for part in message["parts"]]
        assert part_ids == sorted(part_ids), part_ids
        if info["role"] == "assistant":
            assert info["parentID"] in prompts, info
            assert info["time"].get("completed", 0) >= info["time"]["created"], info
        for part in message["parts"]:
            if part["type"] in ("text", "reasoning") and info["role"] == "assistant":
                assert "end" in part["time"], part
    for tool in tools(messages):
        assert tool["state"]["status"] in ("completed", "error"), tool


def open_watch(server: Bench) -> Watch:
    """A new session on a stream of its own."""
    stream = Stream(server.api)
    server.later(stream.close)
    return Watch.on(server.api, stream)


def turn(server: Bench, watch: Watch, prompt: str, *, asked: set[str] | None = None, **fields: str) -> list[Json]:
    """Send a prompt, and allow all that is asked, which is noted in `asked`. Out: the tool parts."""
    at = watch.prompt(prompt, **fields)

    def answer_asks() -> object:
        for ask in server.api.get("/permission"):
            if asked is not None:
                asked.add(ask["permission"])
            server.api.post(f"/permission/{ask['id']}/reply", {"reply": "once"})
        return watch.at_rest(at)

    wait_for(answer_asks, TURN_S, "the turn does not end")
    return tools(watch.wait_for_answer(at))
