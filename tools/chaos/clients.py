"""Clients at work: each has a session, prompts it through any node, and repeats what was refused, with the same id.

The load paces itself: AT_ONCE turns run at the same time in the whole cluster, and a client prompts again only after it has seen
its turn end, or has waited TURN_S. A slow machine has fewer turns, and no failures for that reason. No check looks at a clock.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tools.chaos.evidence import Evidence, Prompt
from tools.chaos.machines import Node
from tools.chaos.streams import IdleBell

AT_ONCE = 16
"""Maximum turns that run at the same time."""
TURN_S = 20.0
"""Seconds after which a client does not wait for the end of its turn any longer, and goes on."""
ANSWER_S = 30.0
"""Maximum seconds for an answer; a paused node gives none."""
AGAIN_S = 1.0
"""Seconds between two tries of a refused request."""
TRIES = 30
"""Tries of a prompt. Then its client leaves it, and makes another one."""
AT_HOME = 0.6
"""Share of the requests that a client sends to the node where its session was created; the others go to any node."""
ABORT_AFTER_S = 0.5
DIRECTORIES = 20
"""Maximum directories of the sessions."""
MOCK = {"providerID": "mock", "modelID": "mock"}
PROCESS = {"providerID": "claude", "modelID": "default"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of prompt: its text, and what its client does meanwhile.

    is_aborted  it aborts the turn
    dialog      it answers the `permission` or the `question` that the agent asks
    is_queued   another client prompts too, while the turn runs
    """

    text: str
    is_aborted: bool = False
    dialog: str = ""
    is_queued: bool = False


MOCK_KINDS: Sequence[Kind] = (
    Kind("echo hello"),
    Kind("echo hello again"),
    Kind("burst 60"),
    Kind("tool"),
    Kind("slow 4"),
    Kind("slow 10"),
    Kind("error"),
    Kind("hang", is_aborted=True),
    Kind("subagent"),
    Kind("permission", dialog="permission"),
    Kind("permission", is_aborted=True),
    Kind("question", dialog="question"),
    Kind("question", is_aborted=True),
    Kind("slow 10", is_queued=True),
)
MORTAL_TEXTS = ("slow 10", "permission", "question", "subagent", "echo short")
"""Prompts of sessions that are deleted."""
MORTALS = 4
"""Clients that create sessions, prompt and delete them."""
DELETE_AFTER_S = (0.0, 3.0)
"""Minimum and maximum seconds after which they do so."""
DIALOG_TRIES, DIALOG_POLL_S = 8, 0.5
"""Looks for what an agent asks, and the seconds between two. A turn that was lost asks nothing."""
ANSWERS: Mapping[str, Any] = {"permission": {"reply": "once"}, "question": {"answers": [["Red"], ["Tests"]]}}
PROCESS_KINDS: Sequence[Kind] = (
    Kind("[deltas:20] say it"),
    Kind("[rate:10][deltas:20] say it slowly"),
    Kind("[hang:1] wait", is_aborted=True),
    Kind("[die:1] fall"),
)
LAST: Mapping[bool, Kind] = {False: Kind("echo last"), True: Kind("[deltas:1] last")}
"""The last prompt of each session, by whether its agent is a process. It takes along what still waits."""


@dataclass(frozen=True, slots=True)
class Work:
    """A session: where it was created, its directory, and whether its agent is a process."""

    session_id: str
    home: Node
    directory: str
    is_process: bool


def is_refusal(status: int, body: str) -> bool:
    """Whether an answer is one that docs/cluster.md names: try again."""
    return status == 503 or (status == 409 and "another server" in body)


class Clients:
    """All clients of a run. What they do is noted in `evidence`; `counts` has the figures of the report."""

    def __init__(self, http: aiohttp.ClientSession, nodes: Sequence[Node], bell: IdleBell, evidence: Evidence, seed: int) -> None:
        self._http = http
        self._nodes = nodes
        self._bell = bell
        self._evidence = evidence
        self._chance = random.Random(seed)  # noqa: S311 - equal seeds must give equal work
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.works: list[Work] = []
        self.counts: Counter[str] = Counter()

    def any_node(self) -> Node:
        """A node by chance."""
        return self._chance.choice(self._nodes)

    # --- requests ------------------------------------------------------------------------------------------------

    async def ask(self, node: Node, method: str, path: str, body: Any = None, *, expected: Sequence[int] = ()) -> tuple[int, str]:
        """Status and text of an answer; status 0 if there is none. An answer that nobody may give is noted."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        try:
            async with self._http.request(method, node.url + path, json=body, timeout=timeout) as answer:
                status, text = answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            self.counts["no answer"] += 1
            return 0, ""
        if is_refusal(status, text):
            self.counts["refused"] += 1
        elif status >= 400 and status not in expected and not (status == 409 and "exists already" in text):
            self._evidence.answers.append(f"{method} {path} at {node.name}: {status} {text[:300]}")
        return status, text

    def _node_for(self, work: Work) -> Node:
        return work.home if self._chance.random() < AT_HOME else self.any_node()

    # --- work ----------------------------------------------------------------------------------------------------

    async def create(self, count: int, directories: Sequence[str]) -> None:
        """Create the sessions."""

        async def create(number: int) -> Work:
            home, directory = self._nodes[number % len(self._nodes)], directories[number % len(directories)]
            async with self._slots:
                while True:
                    status, text = await self.ask(home, "POST", f"/session?directory={directory}", {})
                    if status == 200:
                        session_id = str(json.loads(text)["id"])
                        return Work(session_id, home, directory, is_process=number < len(directories))
                    await asyncio.sleep(AGAIN_S)

        self.works = list(await asyncio.gather(*map(create, range(count))))

    async def work(self, seconds: float) -> None:
        """Let all clients work for so long."""
        until = asyncio.get_running_loop().time() + seconds
        directories = list(dict.fromkeys(work.directory for work in self.works))
        mortals = (self._create_and_delete(directories, until) for _ in range(MORTALS))
        await asyncio.gather(*(self._work(work, until) for work in self.works), *mortals)

    async def _work(self, work: Work, until: float) -> None:
        loop, kinds = asyncio.get_running_loop(), PROCESS_KINDS if work.is_process else MOCK_KINDS
        while loop.time() < until:
            async with self._slots:
                if loop.time() < until:
                    await self._turn(work, self._chance.choice(kinds), until)

    async def _turn(self, work: Work, kind: Kind, until: float) -> None:
        self._bell.clear(work.session_id)
        prompt = await self.prompt(work, kind, until)
        if not prompt.is_acknowledged:
            return
        if kind.dialog:
            await self._answer(work, kind.dialog)
        if kind.is_queued:
            await self.prompt(work, Kind("echo queued"), until)
        if kind.is_aborted:
            await asyncio.sleep(ABORT_AFTER_S)
            await self._abort(work, until)
        if not await self._bell.wait(work.session_id, TURN_S):
            self.counts["turns not waited for"] += 1

    async def prompt(self, work: Work, kind: Kind, until: float) -> Prompt:
        """Send a prompt until a server says that it is stored, or TRIES are over, or the work is."""
        prompt = Prompt(work.session_id, f"msg_chaos{len(self._evidence.prompts) + 1:06}", kind.text)
        self._evidence.prompts.append(prompt)
        model = PROCESS if work.is_process else MOCK
        body = {"messageID": prompt.message_id, "model": model, "parts": [{"type": "text", "text": kind.text}]}
        for number in range(TRIES):
            prompt.is_repeated = number > 0
            status, text = await self.ask(self._node_for(work), "POST", f"/session/{work.session_id}/prompt_async", body)
            if status == 204 or (status == 409 and "exists already" in text):
                prompt.is_acknowledged = True
                self.counts["prompts acknowledged"] += 1
                break
            if status and not is_refusal(status, text):
                break  # noted
            await asyncio.sleep(AGAIN_S)
            if asyncio.get_running_loop().time() > until:
                break
        return prompt

    async def _abort(self, work: Work, until: float) -> None:
        while asyncio.get_running_loop().time() < until:
            status, _ = await self.ask(self._node_for(work), "POST", f"/session/{work.session_id}/abort")
            if status == 200:
                self.counts["aborts"] += 1
                return
            await asyncio.sleep(AGAIN_S)

    async def _answer(self, work: Work, kind: str) -> None:
        """Answer what the agent of a session asks. If its server is lost, it asks nothing, or the answer comes too late."""
        for _ in range(DIALOG_TRIES):
            status, text = await self.ask(self._node_for(work), "GET", f"/{kind}?directory={work.directory}")
            asked = [one["id"] for one in json.loads(text) if one["sessionID"] == work.session_id] if status == 200 else []
            for id_ in asked:
                path = f"/{kind}/{id_}/reply?directory={work.directory}"
                status, _ = await self.ask(self._node_for(work), "POST", path, ANSWERS[kind], expected=(404,))
                if status in (200, 404):
                    self.counts[f"{kind}s answered" if status == 200 else "answers that came too late"] += 1
                    return
            await asyncio.sleep(DIALOG_POLL_S)

    async def _create_and_delete(self, directories: Sequence[str], until: float) -> None:
        """Create sessions, prompt, and delete them at another node, in the middle of a turn as a rule."""
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            status, text = await self.ask(self.any_node(), "POST", f"/session?directory={self._chance.choice(directories)}", {})
            if status != 200:
                await asyncio.sleep(AGAIN_S)
                continue
            session_id = str(json.loads(text)["id"])
            body = {"model": MOCK, "parts": [{"type": "text", "text": self._chance.choice(MORTAL_TEXTS)}]}
            await self.ask(self.any_node(), "POST", f"/session/{session_id}/prompt_async", body)
            await asyncio.sleep(self._chance.uniform(*DELETE_AFTER_S))
            await self._delete(session_id)

    async def _delete(self, session_id: str) -> None:
        """Delete a session: its client tries until a server says that it is gone."""
        for _ in range(TRIES):
            status, _ = await self.ask(self.any_node(), "DELETE", f"/session/{session_id}", expected=(404,))
            if status in (200, 404):
                self._evidence.deleted.append(session_id)
                self.counts["deletions"] += 1
                return
            await asyncio.sleep(AGAIN_S)

    # --- the end -------------------------------------------------------------------------------------------------

    async def finish(self, seconds: float) -> None:
        """Bring every session to rest, after all faults are undone: abort what runs, and prompt for the last time."""
        until = asyncio.get_running_loop().time() + seconds

        async def finish(work: Work) -> None:
            async with self._slots:
                await self._abort(work, until)
                self._bell.clear(work.session_id)
                prompt = await self.prompt(work, LAST[work.is_process], until)
                if prompt.is_acknowledged:
                    await self._bell.wait(work.session_id, TURN_S)
                else:
                    self._evidence.answers.append(f"the last prompt of {work.session_id} was never accepted")

        await asyncio.gather(*map(finish, self.works))
