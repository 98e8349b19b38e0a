"""What clients do to actors: start them, send to them, ask, pause, resume, edit and stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

from msgspec import msgpack

from longshore.client.actor_requests import ActorRequests
from longshore.client.connection import Connection
from longshore.errors import Conflict, NotFound, Unavailable
from longshore.model.actor import (
    Actor,
    ActorStatus,
    ActorVerdict,
    MailAction,
    MailView,
    Message,
    Reply,
)
from longshore.testing.simulation.actor_plans import (
    ActorPlans,
    Control,
    ControlPlan,
    Entry,
    Name,
    StartPlan,
    StreamPlan,
    content_of,
    log_in,
    pack_log,
)
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.turn_bodies import Told

KEEP_S: Final = 3.0
"""So often does a keeper look after its actor."""
WAIT_S: Final = 20.0
PAUSE_S: Final = 0.5

T = TypeVar("T")
Note = Callable[..., None]


class OnActors(Protocol):
    """Is told what clients were told."""

    def accepted(self, message: UUID) -> None:
        """A message is in its mailbox."""

    def told(self, reply: Reply) -> None:
        """An ask was answered."""


class ActorClient:
    """The part of a client that is about actors."""

    def __init__(self, name: str, plans: ActorPlans, on_actors: OnActors, note: Note) -> None:
        self._plans = plans
        self._name = name
        self._on_actors = on_actors
        self._note = note
        self._edits = 0

    def works(self, connection: Connection) -> list[Awaitable[None]]:
        """All that it has to do."""
        plans = self._plans
        return [
            *(
                self._start(connection.actors, one)
                for one in plans.starts
                if one.client == self._name
            ),
            *(
                self._stream(connection.actors, one)
                for one in plans.streams
                if one.client == self._name
            ),
            *(
                self._control(connection.actors, one)
                for one in plans.controls
                if one.client == self._name
            ),
        ]

    def keepers(self, connection: Connection) -> list[Awaitable[None]]:
        """What it does for as long as it lives: it resumes actors that failed or are paused."""
        plans = self._plans
        return [
            self._keep(connection.actors, name)
            for name in plans.names
            if plans.keepers[name[1]] == self._name
        ]

    async def _start(self, actors: ActorRequests, plan: StartPlan) -> None:
        await asyncio.sleep(plan.at)
        actor = plan.actor
        self._note(f"starts {actor.type} {actor.key}, reuse {plan.reuse}", actor.id)
        (answer,) = await patiently(lambda: actors.start([actor], reuse=plan.reuse))
        self._note(f"is told {answer.code or 'started'}, existing {answer.existing}", actor.id)
        if answer.code not in ("", Conflict.code):
            raise BrokenPromise(Promise.SOUND, f"a sound start was {answer}", actor.id)

    async def _stream(self, actors: ActorRequests, plan: StreamPlan) -> None:
        await asyncio.sleep(plan.at)
        asks = []
        for after_s, messages in plan.sends:
            await asyncio.sleep(after_s)
            asks += await self._send(actors, messages)
        for ask in asks:
            await self._await(actors, ask)

    async def _send(self, actors: ActorRequests, messages: tuple[Message, ...]) -> list[UUID]:
        """Sends messages. Answers the asks among those that were accepted."""
        to = f"{messages[0].type} {messages[0].key}"
        self._note(f"sends {', '.join(str(one.id) for one in messages)} to {to}")
        answers = await patiently(lambda: actors.send(messages))
        asks = []
        for message, answer in zip(messages, answers, strict=True):
            if answer.code not in ("", NotFound.code):
                raise BrokenPromise(Promise.SOUND, f"a sound message was {answer}")
            if not answer.code:
                self._on_actors.accepted(message.id)
                asks += [message.id] * (message.reply_to is not None)
        return asks

    async def _await(self, actors: ActorRequests, ask: UUID) -> None:
        while True:
            reply = await patiently(lambda: actors.reply(ask, WAIT_S))
            if reply is not None:
                self._note(f"has the reply to {ask}")
                self._on_actors.told(reply)
                if reply.result is not None:
                    for token in msgpack.decode(reply.result, type=Told).tokens:
                        await self._resolve(actors, token)
                return

    async def _resolve(self, actors: ActorRequests, token: str) -> None:
        """Resolves a callback with two values at once: one of them counts, if any does."""
        resolves = (patiently(partial(actors.resolve, token, msgpack.encode(n))) for n in (1, 2))
        verdicts = await asyncio.gather(*resolves)
        self._note(f"has resolved a callback: {', '.join(verdicts)}")
        if verdicts.count(ActorVerdict.DONE) > 1:
            raise BrokenPromise(Promise.ACTORS, f"both values of callback {token} counted")

    async def _control(self, actors: ActorRequests, plan: ControlPlan) -> None:
        await asyncio.sleep(plan.at)
        name, verdict = plan.actor, ActorVerdict.NOT_FOUND
        self._note(f"asks to {plan.control} {' '.join(name)}")
        match plan.control:
            case Control.PAUSE | Control.RESUME:
                paused = plan.control is Control.PAUSE
                verdict = await patiently(lambda: actors.pause(*name, paused))
            case Control.STOP:
                verdict = await patiently(lambda: actors.stop(*name))
            case Control.EDIT | Control.RESTART:
                verdict = await self._edit(actors, name, plan.control is Control.RESTART)
            case Control.PARK | Control.PUT_BACK | Control.DROP:
                verdict = await self._sort(actors, name, MailAction(plan.control.value))
        self._note(f"is told {verdict}")

    async def _edit(self, actors: ActorRequests, name: Name, restart: bool) -> ActorVerdict:
        """Adds an entry to the state that it has seen. It tries once only."""
        actor = await self._show(actors, name)
        if actor is None:
            return ActorVerdict.NOT_FOUND
        self._edits += 1
        state = pack_log([*log_in(actor.state), Entry("edit", f"{self._name}/{self._edits}")])
        version, turn = actor.version, actor.turn
        return await patiently(
            lambda: actors.edit(*name, state, version, turn=turn, restart=restart)
        )

    async def _sort(self, actors: ActorRequests, name: Name, action: MailAction) -> ActorVerdict:
        """Does something with the first message that it may be done with. It tries once only."""
        try:
            mail = await patiently(lambda: actors.mail(*name))
        except NotFound:
            return ActorVerdict.NOT_FOUND
        if action is MailAction.PUT_BACK:
            found = [one.number for one in mail if one.parked]
        else:
            found = [one.number for one in mail if not (one.parked or _is_awaited(one))]
        if not found:
            return ActorVerdict.NOT_FOUND
        return await patiently(lambda: actors.sort_mail(*name, found[0], action))

    async def _show(self, actors: ActorRequests, name: Name) -> Actor | None:
        try:
            return await patiently(lambda: actors.show(*name))
        except NotFound:
            return None

    async def _keep(self, actors: ActorRequests, name: Name) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            actor = await self._show(actors, name)
            if actor is not None:
                await self._sort(actors, name, MailAction.PUT_BACK)
            if actor is not None and actor.status in (ActorStatus.FAILED, ActorStatus.PAUSED):
                await asyncio.sleep(KEEP_S)
                self._note(f"resumes it, which is {actor.status}", actor.id)
                await patiently(lambda: actors.pause(*name, False))


def _is_awaited(mail: MailView) -> bool:
    """Whether somebody waits for the reply to a message, for ever if it were dropped."""
    return mail.name == "note" and content_of(mail.args).is_awaited


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, however often it takes to ask."""
    while True:
        with suppress(Unavailable):
            return await ask()
        await asyncio.sleep(PAUSE_S)
