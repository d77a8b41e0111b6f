"""A running server for tests that are no coroutines: hypothesis runs them many times."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live

ANSWER_S = 20.0


class Server:
    """A running one, with a session that has messages. `message` and `part`: ids of the answer there."""

    def __init__(self, runner: asyncio.Runner, context: AbstractAsyncContextManager[Live]) -> None:
        self.runner = runner
        self.context = context
        self.live = runner.run(context.__aenter__())
        self.session = self.do(self.live.session())
        answer = self.do(self.live.ask(self.session, "echo hi"))
        self.message, self.part = str(answer["info"]["id"]), str(answer["parts"][0]["id"])

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        async def wait_bounded() -> Any:
            async with asyncio.timeout(ANSWER_S):
                return await what

        return self.runner.run(wait_bounded())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        made = Server(runner, live(Path(folder)))
        yield made
        runner.run(made.context.__aexit__(None, None, None))
