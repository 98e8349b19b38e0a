"""What a client asks of dispatchers about actors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from msgspec import structs

from longshore.errors import ProtocolError, from_code
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorPage,
    ActorVerdict,
    MailAction,
    MailView,
    Message,
    NewActor,
    Reply,
    TurnView,
    UndeliveredSend,
)
from longshore.wire import actor_messages as m

LEAST_READ_S: Final = 1.0
"""A read may begin for so long at least, however short its asker waits."""


class Exchange(Protocol):
    """Sends a request, which may take the dispatcher `within_s` to answer, and gets the answer."""

    def __call__(self, request: m.ActorRequest, within_s: float = 0.0) -> Awaitable[Any]:
        """The answer."""


class ActorRequests:
    """The requests about actors, over one connection."""

    def __init__(
        self,
        exchange: Exchange,
        next_rid: Callable[[], int],
        new_id: Callable[[], UUID],
        wait_slice_s: float,
    ) -> None:
        self._exchange = exchange
        self._next_rid = next_rid
        self._new_id = new_id
        self._wait_slice_s = wait_slice_s

    async def start(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> tuple[m.StartAnswer, ...]:
        """Starts actors; one answer for each, in order."""
        request = m.StartActors(self._next_rid(), tuple(actors), reuse)
        answers: tuple[m.StartAnswer, ...] = await self._exchange(request)
        return _one_each(actors, answers)

    async def send(self, messages: Sequence[Message]) -> tuple[m.SendAnswer, ...]:
        """Sends messages; one answer for each, in order."""
        answers: tuple[m.SendAnswer, ...] = await self._exchange(
            m.Send(self._next_rid(), tuple(messages))
        )
        return _one_each(messages, answers)

    async def ask(self, message: Message, wait_s: float) -> Reply | None:
        """Sends a message that wants a reply, and waits for it; None after `wait_s`.

        It raises if the message is refused.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        slice_s = min(wait_s, self._wait_slice_s)
        request = m.Send(self._next_rid(), (message,), slice_s)
        answers: tuple[m.SendAnswer, ...] = await self._exchange(request, within_s=slice_s)
        answer: m.SendAnswer
        [answer] = _one_each((message,), answers)
        if answer.code:
            raise from_code(answer.code, answer.message)
        if answer.reply is not None:
            return answer.reply
        return await self.reply(message.id, max(0.0, deadline - loop.time()))

    async def resolve(self, token: str, value: bytes | None) -> ActorVerdict:
        """Gives a callback its value."""
        return await self._change(m.Resolve(self._next_rid(), self._new_id(), token, value))

    async def reply(self, ask: UUID, wait_s: float) -> Reply | None:
        """The reply to an ask, once there is one; None after `wait_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            left_s = max(0.0, deadline - loop.time())
            slice_s = min(left_s, self._wait_slice_s)
            request = m.AwaitReplies(self._next_rid(), (ask,), slice_s)
            found: tuple[Reply, ...] = await self._exchange(request, within_s=slice_s)
            if found or left_s <= slice_s:
                return found[0] if found else None

    async def show(self, type: str, key: str) -> Actor:
        """One actor; raises `NotFound` if there is none."""
        answer: Actor = await self._exchange(m.ShowActor(self._next_rid(), type, key))
        return answer

    async def page(self, wanted: ActorFilter) -> ActorPage:
        """Some actors by type and key, and where the next ones begin."""
        answer: ActorPage = await self._exchange(m.ListActors(self._next_rid(), wanted))
        return answer

    async def read(
        self, type: str, key: str, name: str, args: bytes, within_s: float
    ) -> Reply | None:
        """What a handler answers that only reads; None after `within_s`."""
        names = (self._next_rid(), self._new_id(), type, key)
        request = m.ReadActor(*names, name, args, max(within_s, LEAST_READ_S))
        await self._exchange(request)
        return await self.reply(request.id, within_s)

    async def all(self, wanted: ActorFilter) -> AsyncGenerator[Actor, None]:
        """Actors by type and key, asked for `limit` at a time."""
        while True:
            page = await self.page(wanted)
            for actor in page.actors:
                yield actor
            if page.after is None:
                break
            wanted = structs.replace(wanted, after=page.after)

    async def turns(self, type: str, key: str) -> tuple[TurnView, ...]:
        """The last turns of an actor, the newest first."""
        answer: tuple[TurnView, ...] = await self._exchange(
            m.ListTurns(self._next_rid(), type, key)
        )
        return answer

    async def mail(self, type: str, key: str, most: int = 100) -> tuple[MailView, ...]:
        """The first messages that an actor has not read, parked ones too."""
        answer: tuple[MailView, ...] = await self._exchange(
            m.ListMail(self._next_rid(), type, key, most)
        )
        return answer

    async def pause(self, type: str, key: str, paused: bool) -> ActorVerdict:
        """Pauses an actor, or lets it go on."""
        return await self._change(m.PauseActor(self._next_rid(), self._new_id(), type, key, paused))

    async def stop(self, type: str, key: str) -> ActorVerdict:
        """Removes an actor."""
        return await self._change(m.StopActor(self._next_rid(), self._new_id(), type, key))

    async def edit(
        self,
        type: str,
        key: str,
        state: bytes,
        version: int,
        *,
        turn: int | None = None,
        restart: bool = False,
        listed: Mapping[str, str] | None = None,
    ) -> ActorVerdict:
        """Replaces the state of an actor; with `turn`, only if that is its last one."""
        names = (self._next_rid(), self._new_id(), type, key)
        given = None if listed is None else dict(listed)
        return await self._change(m.EditActor(*names, state, version, turn, restart, given))

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        """Parks a message, puts it back or drops it."""
        names = (self._next_rid(), self._new_id(), type, key)
        return await self._change(m.SortMail(*names, number, action))

    async def undelivered(self, most: int = 100) -> tuple[UndeliveredSend, ...]:
        """The messages of applications' transactions that could not be delivered."""
        answer: tuple[UndeliveredSend, ...] = await self._exchange(
            m.ListUndelivered(self._next_rid(), most)
        )
        return answer

    async def sort_undelivered(self, message: UUID, *, again: bool) -> bool:
        """Has such a message delivered again, or drops it; whether it was there."""
        request = m.SortUndelivered(self._next_rid(), self._new_id(), message, again)
        answer: bool = await self._exchange(request)
        return answer

    async def _change(self, request: m.ActorRequest) -> ActorVerdict:
        verdict: ActorVerdict = await self._exchange(request)
        return verdict


def _one_each(items: Sequence[Any], answers: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(answers) != len(items):
        raise ProtocolError(f"{len(items)} were sent, {len(answers)} were answered")
    return answers
