"""Clients: they submit, repeat until they are heard, and note whatever they are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from msgspec import DecodeError, structs

from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.errors import LongshoreError, Unavailable
from longshore.model.actor import ActorTerms, Message, NewActor
from longshore.model.job import Ended
from longshore.payload.values import pack_arguments, unpack
from longshore.testing.chaos import app
from longshore.testing.chaos.history import Accepted, Called, Refused, Seen, Sent, Writer
from longshore.testing.chaos.work import Batch, Menu

T = TypeVar("T")

LEDGERS = ("alba", "brig")
EPOCH_S = 30.0
"""So long clients tell the same actors: their states stay small, however long the run is."""
AT_ONCE = 24
"""How many calls a client has under way."""
MESSAGES = 0.25
"""How many calls are messages."""
PAUSE_S = 0.2
WAIT_S = 2.0
MOST_WAITED = 400


class Client:
    """One client, with a connection of its own."""

    def __init__(
        self, name: str, addresses: str, menu: Menu, writer: Writer, per_s: float, seed: str
    ) -> None:
        self.name = name
        self.unended: set[str] = set()
        """What was accepted, and whose end this client has not heard of."""
        self.to_be_told: set[str] = set()
        """What was accepted with a callback."""
        self._menu = menu
        self._writer = writer
        self._per_s = per_s
        self._chance = random.Random(seed)
        self._connection = Connection(addresses, timeout_s=4.0, try_s=1.0, pause_s=0.1)
        self._calls: set[asyncio.Task[None]] = set()
        self._order: dict[str, asyncio.Lock] = {}
        self._counts: dict[str, int] = {}
        self._started: set[str] = set()
        self._watching: asyncio.Task[None] | None = None
        self._began_at = asyncio.get_running_loop().time()

    async def submit(self, stop: asyncio.Event) -> None:
        """Calls again and again until it is told to stop."""
        self._watching = asyncio.create_task(self._watch())
        while not stop.is_set():
            if len(self._calls) < AT_ONCE:
                self._begin(self._next())
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._chance.expovariate(self._per_s))

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _next(self) -> Coroutine[Any, Any, None]:
        epoch = int((asyncio.get_running_loop().time() - self._began_at) / EPOCH_S)
        actors = tuple(f"{one}-{epoch}" for one in LEDGERS)
        if self._chance.random() < MESSAGES:
            return self._tell(self._chance.choice(actors), actors)
        return self._call(self._menu.next(actors), actors)

    async def finish(self, within_s: float) -> None:
        """All that was begun is accepted, or given up after so long without an answer."""
        while self._calls:
            done, _ = await asyncio.wait(
                self._calls, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                await _cancelled(self._calls)

    async def close(self) -> None:
        """Gives up what is not done."""
        await _cancelled([*self._calls, *filter(None, (self._watching,))])
        self._connection.close()

    # calls

    async def _call(self, batch: Batch, actors: tuple[str, ...]) -> None:
        for called in batch.called:
            self._writer.add(_by(called, self.name))
        await self._start(actors)
        if not await self._until_heard(lambda: self._submit(batch), batch.called[0].job):
            return
        for called in batch.called:
            self._writer.add(Accepted(job=called.job))
            self.unended.add(called.job)
            if called.callback:
                self.to_be_told.add(called.job)
        if batch.cancels:
            await asyncio.sleep(self._chance.uniform(0, 0.5))
            ids = [UUID(one.job) for one in batch.called]
            await self._until_heard(lambda: self._connection.cancel(ids), batch.called[0].job)

    async def _submit(self, batch: Batch) -> None:
        if batch.group is not None:
            edges = sum(len(node.after) for node in batch.group.nodes)
            await self._connection.submit_group(batch.group, edges)
            return
        for answer in await self._connection.submit(batch.jobs):
            if answer.code in (Unavailable.code, "store_unavailable"):
                raise Unavailable(answer.message)
            if answer.code:
                raise LongshoreError(f"{answer.code}: {answer.message}")

    async def _tell(self, to: str, actors: tuple[str, ...]) -> None:
        """One more message of this client to an actor, after all earlier ones."""
        async with self._order.setdefault(to, asyncio.Lock()):
            await self._start(actors)
            self._counts[to] = n = self._counts.get(to, 0) + 1
            words: dict[str, object] = {"sender": self.name, "n": n}
            name = self._chance.choice(("note", "note", "forward"))
            if name == "forward":
                words["to"] = self._chance.choice([one for one in actors if one != to])
            args = pack_arguments(words, "a message")
            message = Message(fresh_id(), app.ledgers.type, to, name, args)
            if await self._until_heard(lambda: self._send(message), to):
                self._writer.add(Sent(actor=to, sender=self.name, n=n))

    async def _send(self, message: Message) -> None:
        for answer in await self._connection.actors.send((message,)):
            if answer.code in (Unavailable.code, "store_unavailable"):
                raise Unavailable(answer.message)
            if answer.code:
                raise LongshoreError(f"{answer.code}: {answer.message}")

    async def _start(self, actors: tuple[str, ...]) -> None:
        """The actors are there."""
        if self._started.issuperset(actors):
            return
        actor_class = app.ledgers.actor_class
        state = actor_class.pack(actor_class.new({}))
        new = [
            NewActor(fresh_id(), app.ledgers.type, key, state, 1, ActorTerms()) for key in actors
        ]
        if await self._until_heard(lambda: self._connection.actors.start(new, reuse=True), "start"):
            self._started.update(actors)

    async def _until_heard(self, ask: Callable[[], Awaitable[object]], subject: str) -> bool:
        """Asks until there is an answer; whether that is yes."""
        while True:
            try:
                await ask()
            except Unavailable:
                await asyncio.sleep(PAUSE_S)
            except LongshoreError as error:
                self._writer.add(Refused(subject=subject, why=f"{error.code}: {error}"))
                return False
            else:
                return True

    # outcomes

    async def _watch(self) -> None:
        """Notes each outcome that it is told."""
        while True:
            some = [UUID(one) for one in sorted(self.unended)[:MOST_WAITED]]
            try:
                ended = await self._connection.wait(some, WAIT_S) if some else ()
            except LongshoreError:
                ended = ()
            for one in ended:
                self.unended.discard(str(one.id))
                self._writer.add(
                    Seen(job=str(one.id), state=str(one.state), attempt=attempt_of(one))
                )
            if not ended:
                await asyncio.sleep(PAUSE_S)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in (all_of := list(tasks)):
        task.cancel()
    await asyncio.gather(*all_of, return_exceptions=True)


def _by(called: Called, client: str) -> Called:

    return structs.replace(called, client=client)


def attempt_of(ended: Ended) -> str:
    """Which attempt made this result, as the result itself says."""
    return attempt_in(ended.result)


def attempt_in(result: bytes | None) -> str:
    """The same of a result's bytes; empty if they do not say."""
    if not result:
        return ""
    with suppress(DecodeError, ValueError, UnicodeDecodeError):
        value = unpack(result)
        if isinstance(value, dict):
            return str(value.get("attempt", ""))
    return result.decode(errors="replace") if result.startswith(b"plain") else ""
