"""A dispatcher that answers by script, at the other end of a real client connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from longshore.cli.main import execute
from longshore.client.connection import Connection
from longshore.config import Config
from longshore.errors import LongshoreError
from longshore.model.job import JobState
from longshore.model.log import LogPage
from longshore.model.worker import Capacity, KindCapacity, Pool
from longshore.ports import Link, OnMessages
from longshore.wire import codec, messages

Answers = dict[type, Any]
NO_LOG = LogPage(lines=(), after=(0, 0), more=False, state=JobState.SUCCEEDED, attempt=1)


def fleet_of(*kinds: str) -> Capacity:
    """What one worker of these kinds can take."""
    one = {"pool": Pool.COROUTINE, "workers": 1, "slots": 1, "busy": 0, "free": 1, "running": 0}
    return Capacity(
        kinds=tuple(msgspec.convert({"kind": kind, **one}, KindCapacity) for kind in kinds),
        pools=(),
    )


class ScriptedDispatcher:
    """Answers each request with what the script has for it: a value, an error, or a function."""

    def __init__(self) -> None:
        self.answers: Answers = {
            messages.ShowKind: None,
            messages.ReadLogs: NO_LOG,
            messages.ListRunTimes: (),
            messages.ShowCapacity: lambda request: fleet_of(*self._submitted()),
        }
        self.asked: list[messages.Request] = []
        self.configs: list[Config] = []

    def run(self, *arguments: str) -> int:
        """Runs one command against this dispatcher; answers its exit code."""
        return execute(arguments, self.connect)

    def connect(self, config: Config) -> Connection:
        self.configs.append(config)
        return Connection(config.client_addresses(), timeout_s=1, connect=self._dial)

    def _dial(self, address: str, on_messages: OnMessages) -> Link:
        return _ScriptedLink(self, on_messages)

    def _submitted(self) -> list[str]:
        submits = [request for request in self.asked if isinstance(request, messages.Submit)]
        return [job.kind for request in submits for job in request.jobs]

    def frames(self, request: messages.Request) -> list[bytes]:
        """The answer to one request, as it would come over the wire."""
        self.asked.append(request)
        answer = self.answers[type(request)]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, LongshoreError):
            return codec.encode(messages.Err(request.rid, answer.code, str(answer)))
        return codec.ok(request.rid, answer)


class _ScriptedLink:
    def __init__(self, dispatcher: ScriptedDispatcher, on_messages: OnMessages) -> None:
        self._dispatcher = dispatcher
        self._on_messages = on_messages

    def key_of(self, peer: bytes) -> str:
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Answers at once, in the next turn of the loop."""
        answer = self._dispatcher.frames(codec.from_client.decode(frames))
        asyncio.get_running_loop().call_soon(self._on_messages, [(b"", answer)])
        return True

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def dispatcher() -> ScriptedDispatcher:
    """A dispatcher whose answers a test sets."""
    return ScriptedDispatcher()


@pytest.fixture(autouse=True)
def _elsewhere(elsewhere: None) -> None:
    """No settings of whoever runs the tests are read."""
