"""The SDK's adapters: the one place in it that names sockets, keys and SQL.

They are imported when they are first used. A process that only runs jobs imports the SDK with its
app, and needs none of them: they take half of the time of the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from longshore.client.tokens import own_secret
from longshore.config import Config
from longshore.model.actor import Message
from longshore.model.job import Refused, Submission, Submitted
from longshore.ports import Link, OnMessages

if TYPE_CHECKING:
    import zmq

    from longshore.links.zeromq import Secure

Answer = Submitted | Refused


def is_http(address: str) -> bool:
    """Whether an address is that of a gateway."""
    return address.startswith(("http://", "https://"))


class Dialler:
    """Opens sockets to dispatchers."""

    def __init__(self, secure: Secure | None = None) -> None:
        self._secure = secure
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    @classmethod
    def of(cls, settings: Config) -> Dialler:
        """A dialler with the keys that the settings name."""
        from longshore.links.credentials import calling_with

        return cls(calling_with(settings))

    def connect(self, address: str, on_messages: OnMessages) -> Link:
        """A link to a dispatcher, or to a gateway if the address is of HTTP."""
        if is_http(address):
            from longshore.links.http import HttpLink

            return HttpLink(address, on_messages, own_secret())
        import zmq

        from longshore.links.zeromq import Dealer

        if self._context is None:
            self._context = zmq.Context()
        return Dealer(self._context, address, on_messages, self._secure)

    def advice(self, addresses: Iterable[str]) -> str:
        """What to check if no dispatcher answers at these addresses."""
        sockets = [address for address in addresses if not is_http(address)]
        if not sockets:
            return "; gateways answer at the address that --http names"
        from longshore.links.credentials import key_advice

        keys = key_advice(self._secure, sockets, "client")
        return f"; clients connect to the address that its --frontend names{keys}"

    def close(self) -> None:
        """Frees the sockets. All its links must be closed before."""
        if self._context is not None:
            self._context.term()
            self._context = None


def enqueue_in(connection: object, jobs: Sequence[Submission], *, notify: bool) -> list[Answer]:
    """Enqueues jobs in the transaction of an application's blocking connection."""
    from longshore.store.postgres.app_connection import talk
    from longshore.store.postgres.enqueue import enqueue

    return talk(connection, enqueue(jobs, notify=notify))


def send_in(connection: object, messages: Sequence[Message], *, notify: bool) -> None:
    """Sends messages in the transaction of an application's blocking connection."""
    from longshore.store.postgres.app_connection import talk
    from longshore.store.postgres.enqueue import enqueue_sends

    talk(connection, enqueue_sends(messages, notify=notify))


async def send_in_async(connection: object, messages: Sequence[Message], *, notify: bool) -> None:
    """Sends messages in the transaction of an application's asynchronous connection."""
    from longshore.store.postgres.app_connection import talk_async
    from longshore.store.postgres.enqueue import enqueue_sends

    await talk_async(connection, enqueue_sends(messages, notify=notify))


async def enqueue_in_async(
    connection: object, jobs: Sequence[Submission], *, notify: bool
) -> list[Answer]:
    """Enqueues jobs in the transaction of an application's asynchronous connection."""
    from longshore.store.postgres.app_connection import talk_async
    from longshore.store.postgres.enqueue import enqueue

    return await talk_async(connection, enqueue(jobs, notify=notify))
