"""Runs an agent's own login in a terminal of the server, and hands on the link that it shows.

No token passes through here: the agent's program gets and keeps it. A code that the page shows is typed into the terminal.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog

from shim.agents.directory import Agent
from shim.host.terminals.terminal_manager import PtyProcess, PtySpec
from shim.lib.clock import Clock
from shim.lib.errors import InvalidRequest
from shim.lib.tasks import keep, wait_at_most
from shim.processes.child_environment import child_environment

log = structlog.get_logger(__name__)

URL_S = 90.0
"""Seconds for the program to show its link."""
SETTLE_S = 0.5
"""Seconds after the link for what is said beside it, such as a code to be typed on its page."""
LOGIN_S = 900.0
"""Seconds for the person to log in: as long as a device code is good."""
OUTPUT_CHARS = 20_000
SHOWN_CHARS = 600
WIDTH = 2_000
"""Columns of the terminal: a link stands in one line."""
ENVIRONMENT: Mapping[str, str | None] = {"TERM": "xterm-256color", "BROWSER": "true", "COLUMNS": None, "LINES": None}
"""No browser is opened here: the person sits elsewhere."""
_CONTROL = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|[\r\x00-\x08\x0b-\x1f]")
_URL = re.compile(r"https?://(?!localhost|127\.)[^\s\"'<>]+(?=\s)")
CODE = "Open the link, log in, and paste the code that it shows."


@dataclass(slots=True)
class Login:
    """A login that was begun. `takes_code`: the page shows a code, which `Logins.finish` types."""

    id: str
    agent: str
    takes_code: bool
    created_ms: int
    process: PtyProcess | None = None
    output: str = ""
    status: Literal["pending", "complete", "failed", "expired"] = "pending"
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def expires_ms(self) -> int:
        return self.created_ms + int(LOGIN_S * 1000)

    @property
    def url(self) -> str:
        """The link; "" before the program has shown it."""
        match = _URL.search(self.output + "\n" if self.over.is_set() else self.output)
        return match[0] if match else ""

    @property
    def words(self) -> str:
        """What the program has said beside the link."""
        lines = (line.strip() for line in self.output.replace(self.url or "\0", "").splitlines())
        return "\n".join(line for line in lines if line)[-SHOWN_CHARS:]

    @property
    def instructions(self) -> str:
        return CODE if self.takes_code else self.words


class Logins:
    """The logins of a server, at most one for each agent. In: `environ`, the person's; `on_end`, called when one has worked."""

    def __init__(self, clock: Clock, environ: Callable[[], Mapping[str, str]], on_end: Callable[[], object]) -> None:
        self._clock = clock
        self._environ = environ
        self._on_end = on_end
        self._logins: dict[str, Login] = {}
        self._expiry: dict[str, asyncio.TimerHandle] = {}
        self._ends = set[asyncio.Task[None]]()

    def find(self, agent: str, id_: str | None = None) -> Login | None:
        """The last login of an agent, or the one with this id."""
        login = self._logins.get(agent)
        return login if login is not None and id_ in (None, login.id) else None

    async def begin(self, agent: Agent) -> Login:
        """Start the agent's login and wait for its link. An earlier one is cancelled. Raises InvalidRequest."""
        spec = agent.spec
        if spec.program.login_run is None or agent.located.path is None:
            raise InvalidRequest(f"{spec.title} has no login that can be begun here. {spec.program.login_hint}".strip())
        await self.cancel(spec.name)
        login = Login(secrets.token_hex(8), spec.name, spec.program.login_run.takes_code, self._clock.now_ms())
        self._logins[spec.name] = login
        argv, environ = (agent.located.path, *spec.program.login_run.args), self._environ()
        token = f"login-{login.id}"
        pty = PtySpec(argv, environ.get("HOME") or "/", child_environment(environ, ENVIRONMENT, token), token)
        login.process = PtyProcess(pty, lambda text: _hear(login, text), lambda code: self._end(login, code))
        try:
            await login.process.start()
            login.process.resize(50, WIDTH)
            self._expiry[login.id] = asyncio.get_running_loop().call_later(LOGIN_S, self._expire, login)
            async with asyncio.timeout(URL_S):
                while not login.url and not login.over.is_set():
                    login.heard.clear()
                    await login.heard.wait()
            await wait_at_most(login.over.wait(), SETTLE_S)
        except (OSError, TimeoutError) as error:
            await self.cancel(spec.name)
            raise InvalidRequest(f"{self._name(agent)} has shown no link: {login.words or error or 'it was silent'}.") from error
        if not login.url or login.status == "failed":
            raise InvalidRequest(f"{self._name(agent)} has failed: {login.output.strip()[-SHOWN_CHARS:] or 'it said nothing'}")
        log.info("login.begun", agent=spec.name)
        return login

    def _name(self, agent: Agent) -> str:
        run = agent.spec.program.login_run
        words = " ".join((*agent.spec.program.binaries[:1], *(run.args if run is not None else ())))
        return f"The login of {agent.spec.title} (`{words}`)"

    async def finish(self, login: Login, code: str | None) -> None:
        """Type the code, if there is one, and wait for the end of the login. Raises InvalidRequest if it has failed."""
        if login.takes_code and login.process is not None:
            if not code or not code.isprintable():
                raise InvalidRequest("The login needs the code that its page shows.", path=("code",))
            login.output = ""  # what is said from here on is about the code, which the terminal shows too
            await login.process.write(f"{code.strip()}\r".encode())
        await login.over.wait()  # it expires after LOGIN_S
        if login.status != "complete":
            words = login.words.replace((code or "").strip() or "\0", "").strip()
            raise InvalidRequest(f"The login was not completed: {words or login.status}")

    async def cancel(self, agent: str) -> None:
        """End the login of an agent, if one is open."""
        login = self._logins.pop(agent, None)
        if login is not None and login.process is not None:
            await login.process.end()

    async def close(self) -> None:
        await asyncio.gather(*(self.cancel(agent) for agent in tuple(self._logins)))
        await asyncio.gather(*self._ends)

    def _end(self, login: Login, code: int) -> None:
        if (timer := self._expiry.pop(login.id, None)) is not None:
            timer.cancel()
        if login.status == "pending":
            login.status = "complete" if code == 0 else "failed"
        login.over.set()
        login.heard.set()
        log.info("login.ended", agent=login.agent, status=login.status)
        if login.status == "complete":
            self._on_end()

    def _expire(self, login: Login) -> None:
        login.status = "expired"
        if login.process is not None:
            keep(asyncio.create_task(login.process.end()), self._ends)


def _hear(login: Login, text: str) -> None:
    login.output = (login.output + _CONTROL.sub("", text))[-OUTPUT_CHARS:]
    login.heard.set()
