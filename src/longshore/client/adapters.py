"""The SDK's adapters: the one place in it that names sockets, keys and SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import zmq

from longshore.config import Config
from longshore.links.credentials import calling_with, key_advice
from longshore.links.zeromq import Dealer, Secure
from longshore.model.job import Refused, Submission, Submitted
from longshore.ports import Link, OnMessages
from longshore.store.postgres.app_connection import talk, talk_async
from longshore.store.postgres.enqueue import enqueue

Answer = Submitted | Refused


class Dialler:
    """Opens sockets to dispatchers."""

    def __init__(self, secure: Secure | None = None) -> None:
        self._secure = secure
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    @classmethod
    def of(cls, settings: Config) -> Dialler:
        """A dialler with the keys that the settings name."""
        return cls(calling_with(settings))

    def connect(self, address: str, on_messages: OnMessages) -> Link:
        """A link to a dispatcher."""
        if self._context is None:
            self._context = zmq.Context()
        return Dealer(self._context, address, on_messages, self._secure)

    def advice(self, addresses: Iterable[str]) -> str:
        """What to check if no dispatcher answers at these addresses."""
        return key_advice(self._secure, addresses, "client")

    def close(self) -> None:
        """Frees the sockets. All its links must be closed before."""
        if self._context is not None:
            self._context.term()
            self._context = None


def enqueue_in(connection: object, jobs: Sequence[Submission], *, notify: bool) -> list[Answer]:
    """Enqueues jobs in the transaction of an application's blocking connection."""
    return talk(connection, enqueue(jobs, notify=notify))


async def enqueue_in_async(
    connection: object, jobs: Sequence[Submission], *, notify: bool
) -> list[Answer]:
    """Enqueues jobs in the transaction of an application's asynchronous connection."""
    return await talk_async(connection, enqueue(jobs, notify=notify))
