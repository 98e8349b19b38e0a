"""What all hosts do alike: they load the apps, read frames, and end with their agent."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import deque
from typing import NoReturn

from longshore.errors import AppError, ConfigError, ProtocolError
from longshore.executors import scratch
from longshore.executors.frames import FromHost, Load, Loaded, LoadFailed, ToHost, pack, to_host
from longshore.executors.host.apps import Apps, load_apps
from longshore.executors.host.context import RunningContext
from longshore.executors.host.forks import leave
from longshore.executors.host.lifespan import Lifespan
from longshore.executors.output.attempt_log import AttemptLog
from longshore.executors.output.capture import install
from longshore.model.attempt import Assignment
from longshore.model.worker import Pool


class Host(ABC):
    """One host process from within. A subclass runs the attempts of one pool."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._unpacker = to_host()
        self._inbox: deque[ToHost] = deque()

    def load(self, pool: Pool) -> None:
        """Imports the apps and begins their lifespan: both must be well before a job can come."""
        load = self._next_message()
        assert isinstance(load, Load), "an agent says first what to load"
        self._limits = load.limits
        # Before the app is imported: some libraries keep the streams that they find then.
        self._set_streams = install(echo=load.limits.echo, mark=True)
        scratch.settle(load.scratch)
        try:
            self._expect(load)
            self._handlers, spans = self._apps(load)
            self._lifespan = Lifespan(spans(pool), self._make_loop)
            self._lifespan.begin()
        except (AppError, ConfigError) as error:
            self._send(LoadFailed(str(error)))
            leave()
        self._send(Loaded({kind: handler.info for kind, handler in self._handlers.items()}))

    def _apps(self, load: Load) -> Apps:
        """What the apps declare; raises `AppError` if one cannot be imported."""
        return load_apps(load.app)

    def _expect(self, load: Load) -> None:  # noqa: B027
        """Makes ready for as many attempts as the agent says."""

    @abstractmethod
    def serve(self) -> NoReturn:
        """Runs attempts until the agent is gone."""

    @abstractmethod
    def _make_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the apps open their resources."""

    @abstractmethod
    def _wake(self, attempt_log: AttemptLog) -> None:
        """Has the agent told soon what an attempt says. Jobs call it, from any thread."""

    def _context(self, assignment: Assignment) -> RunningContext:
        return RunningContext(assignment, self._wake, self._limits)

    def _next_message(self) -> ToHost:
        while not self._inbox:
            self._read()
        return self._inbox.popleft()

    def _read(self, flags: int = 0) -> None:
        try:
            count, messages = self._unpacker.read(self._sock, flags)
            self._inbox.extend(messages)
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            leave()
        if not count:
            leave()

    def _send(self, *messages: FromHost) -> None:
        self._send_bytes(b"".join(map(pack, messages)))

    def _send_bytes(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError:
            leave()
