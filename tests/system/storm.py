"""A fleet of ledgers in a storm: clients send, and a nemesis kills, drains and freezes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.core.lifecycle import TERMINAL
from longshore.errors import Unavailable
from longshore.model.actor import Actor, ActorStatus, ActorVerdict, Message, ReplyTo
from longshore.model.worker import QueueView
from longshore.payload import values
from longshore.testing.processes import Process, await_true, settings
from tests.system.apps import ledgers
from tests.system.conftest import QUICK_WORKER, Fleet
from tests.system.replay import DEEDS, Entry

LEDGERS = ("Ledger:a", "Ledger:b", "Ledger:c")
BOOKS = ("Book:x", "Book:y")
NAMES = (*LEDGERS, *BOOKS)
REPEATED = 0.2
"""How often a client sends again what was accepted."""
PAUSED = 0.1
"""How often a client pauses the actor to which it sends."""
CRASHES = 1_000
"""No turn is given up as poisonous: it is the storm that ends its workers."""


def pack(**arguments: object) -> bytes:
    return values.pack_arguments(arguments, "a message")


class Clients:
    """Some clients, each of which sends one thing after the other, and what they sent."""

    def __init__(self, addresses: str, seed: int, many: int = 4) -> None:
        self.sent: dict[str, list[Entry]] = defaultdict(list)
        self.answered: list[tuple[str, Entry, int]] = []
        self.pauses = 0
        self.accepted = 0
        """How many messages are in mailboxes, or were."""
        self._addresses = addresses
        self._stop = threading.Event()
        self._random = [random.Random(f"client {seed} {n}") for n in range(many)]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._error: BaseException | None = None

    def have_done_all(self) -> bool:
        """Whether they have done enough of everything."""
        deeds = {entry.deed for some in list(self.sent.values()) for entry in list(some)}
        return self.accepted > 100 and deeds == DEEDS and bool(self.pauses and self.answered)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They send until this ends; then what they began is done."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for n, chance in enumerate(self._random):
                    tasks.create_task(self._client(f"client-{n}", chance))
        except BaseException as error:
            self._error = error

    async def _client(self, sender: str, chance: random.Random) -> None:
        counts: dict[str, int] = defaultdict(int)
        earlier: list[tuple[Message, ...]] = []
        async with Connection(self._addresses) as connection:
            while not self._stop.is_set():
                to = chance.choice(NAMES)
                made = [
                    self._message(sender, to, counts, chance) for _ in range(chance.randint(1, 4))
                ]
                batch = tuple(message for message, _ in made)
                pauses = chance.random() < PAUSED
                if pauses:
                    await self._pause(connection, to, True)
                await self._until_accepted(connection, batch)
                self.sent[to] += [entry for _, entry in made]
                self.accepted += len(made)
                earlier.append(batch)
                if chance.random() < REPEATED:
                    await self._until_accepted(connection, chance.choice(earlier[-5:]))
                if pauses:
                    await self._pause(connection, to, False)
                    self.pauses += 1
                await self._await_replies(connection, made, to)
                await asyncio.sleep(chance.uniform(0, 0.06))

    def _message(
        self, sender: str, to: str, counts: dict[str, int], chance: random.Random
    ) -> tuple[Message, Entry]:
        counts[to] += 1
        common = {"sender": sender, "n": counts[to]}
        deeds = ("note", "note", "relay", "question", "alarm", "hire", "charge", "invite")
        deed = chance.choice(deeds) if to in LEDGERS else "note"
        match deed:
            case "note":
                more: dict[str, object] = {"amount": chance.randint(1, 9)}
            case "relay" | "question":
                more = {"to": chance.choice([one for one in NAMES if one != to])}
            case _:
                more = {}
        entry = Entry(deed, sender, counts[to], str(next(iter(more.values()), "-")))
        type, key = to.split(":")
        back = ReplyTo() if deed == "invite" or chance.random() < 0.1 else None
        args = pack(**common, **more)
        return Message(fresh_id(), type, key, deed, args, reply_to=back), entry

    async def _until_accepted(self, connection: Connection, batch: tuple[Message, ...]) -> None:
        """Sends it, with the same ids, until an answer says that it is in the mailbox."""
        while True:
            try:
                answers = await connection.actors.send(batch)
            except Unavailable:
                continue
            assert [one.code for one in answers] == [""] * len(batch), answers
            return

    async def _await_replies(
        self, connection: Connection, made: list[tuple[Message, Entry]], to: str
    ) -> None:
        for message, entry in made:
            if message.reply_to is None:
                continue
            reply = None
            while reply is None:
                with suppress(Unavailable):
                    reply = await connection.actors.reply(message.id, 1.0)
            assert reply.result is not None, reply
            place = values.unpack(reply.result)
            if entry.deed == "invite":
                place, token = place
                await self._accept(connection, token, f"{entry.sender}.{entry.n}")
            self.answered.append((to, entry, place))

    async def _pause(self, connection: Connection, name: str, paused: bool) -> None:
        """Pauses an actor, or lets it go on, perhaps while another client does the contrary."""
        type, key = name.split(":")
        actors = connection.actors
        await _until_answered(lambda: actors.pause(type, key, paused))

    async def _accept(self, connection: Connection, token: str, value: str) -> None:
        """Resolves a callback, and once more with another value, which must not count."""
        resolve = connection.actors.resolve
        packed = values.pack(value, "a value")
        await _until_answered(lambda: resolve(token, packed))
        other = values.pack("another", "a value")
        verdict = await _until_answered(lambda: resolve(token, other))
        assert verdict is ActorVerdict.ALREADY


async def _until_answered(ask: Callable[[], Awaitable[ActorVerdict]]) -> ActorVerdict:
    while True:
        with suppress(Unavailable):
            verdict = await ask()
            assert verdict in (ActorVerdict.DONE, ActorVerdict.ALREADY), verdict
            return verdict


class Storm:
    """Dispatchers and workers that are disturbed, and started again."""

    def __init__(self, fleet: Fleet, dispatchers: int, seed: int, workers: int = 3) -> None:
        self._fleet = fleet
        self._chance = random.Random(f"nemesis {seed}")
        self._dispatchers = [fleet.dispatcher(crash_limit=CRASHES) for _ in range(dispatchers)]
        self._backends = ",".join(one.facts["backend"] for one in self._dispatchers)
        self.frontends = ",".join(one.facts["frontend"] for one in self._dispatchers)
        self._workers = [self._worker() for _ in range(workers)]
        self._leaving: list[Process] = []
        self.told: list[str] = []

    def _worker(self) -> Process:
        words = ["--app", "ledgers:app", "--connect", self._backends, "--processes", "2"]
        return self._fleet.start("worker", *words, *settings(**QUICK_WORKER))

    def rage(self, seconds: float, is_enough: Callable[[], bool]) -> None:
        """Disturbs one process after the other for so long, in an order that follows the seed.

        On a busy machine it goes on until it is enough.
        """
        over = threading.Event()
        timer = threading.Timer(seconds, over.set)
        timer.start()
        deeds = [self._kill_worker, self._drain_worker, self._freeze_worker]
        deeds += [self._kill_dispatcher, self._freeze_dispatcher, self._kill_host]
        while not (over.is_set() and is_enough()):
            for deed in self._chance.sample(deeds, len(deeds)):
                if not over.wait(self._chance.uniform(0, 0.3)) or not is_enough():
                    deed()
        for process in self._leaving:
            assert process.wait() == 0, process.said()

    def restart_all(self, accepted: Callable[[], int]) -> list[int]:
        """Replaces each worker in turn, as an upgrade does: the new one comes, the old one goes.

        Answers how many messages were accepted during each, from before the new one is started
        until the old one is gone. An old one is asked to go only after some came to both.
        """
        during = []
        for place, old in enumerate(self._workers):
            before = accepted()
            self._workers[place] = self._worker()
            _await_more(accepted)
            assert old.terminate() == 0, old.said()
            during.append(accepted() - before)
        return during

    def _pick(self, some: list[Process]) -> int:
        return self._chance.randrange(len(some))

    def _kill_worker(self) -> None:
        place = self._pick(self._workers)
        self.told.append(f"kill worker {place}")
        self._workers[place].kill()
        self._workers[place] = self._worker()

    def _drain_worker(self) -> None:
        """The new one comes before the old one has left, as in a rolling restart."""
        place = self._pick(self._workers)
        self.told.append(f"drain worker {place}")
        self._workers[place].signal(signal.SIGTERM)
        self._leaving.append(self._workers[place])
        self._workers[place] = self._worker()

    def _freeze_worker(self) -> None:
        """With the processes that run its turns; long enough that it is taken for lost, or not."""
        process = self._workers[self._pick(self._workers)]
        pids = [process.pid, *children(process.pid)]
        self._freeze(pids, self._chance.choice([0.3, 2.5]))
        self.told.append("freeze worker")

    def _kill_host(self) -> None:
        process = self._workers[self._pick(self._workers)]
        hosts = children(process.pid)
        if hosts:
            self.told.append("kill host")
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(hosts), signal.SIGKILL)

    def _kill_dispatcher(self) -> None:
        place = self._pick(self._dispatchers)
        self.told.append(f"kill dispatcher {place}")
        old = self._dispatchers[place]
        old.kill()
        words = (old.facts["backend"], old.facts["frontend"])
        self._dispatchers[place] = self._fleet.dispatcher(*words, crash_limit=CRASHES)

    def _freeze_dispatcher(self) -> None:
        process = self._dispatchers[self._pick(self._dispatchers)]
        self._freeze([process.pid], self._chance.choice([0.3, 2.0]))
        self.told.append("freeze dispatcher")

    def _freeze(self, pids: list[int], seconds: float) -> None:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number is signal.SIGSTOP:
                threading.Event().wait(seconds)


def _await_more(accepted: Callable[[], int]) -> None:
    seen = accepted()
    await_true(lambda: accepted() > seen, "messages come to both")


def children(pid: int) -> list[int]:
    """The processes that a process has started, as the system knows them."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(one) for one in text.split()]


class Watch:
    """Looks at all actors, from outside."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._app = ledgers.app
        self._app.close()
        self._app._addresses = addresses
        for name in NAMES:
            type, key = name.split(":")
            (ledgers.ledgers if type == "Ledger" else ledgers.books).start(key)

    def hush(self) -> None:
        """Lets the ledgers tick no more."""
        for name in LEDGERS:
            ledgers.ref_of(name).send("quiet")

    def states_at_rest(self) -> dict[str, Any] | None:
        """All states, if nothing is under way any more; None otherwise."""
        try:
            before = self._actors()
            is_over = all(actor.job is None for actor in before) and not self._has_jobs()
            after = self._actors()
        except Unavailable:
            return None
        for actor in before:
            if actor.status is ActorStatus.PAUSED:
                # A pause that a frozen dispatcher had before its client asked another.
                ledgers.app.actor_ref(actor.type, actor.key).resume()
                return None
            assert actor.status is not ActorStatus.FAILED, (
                f"{actor.type} {actor.key}: {actor.error}"
            )
        if not is_over or [one.turn for one in before] != [one.turn for one in after]:
            return None
        return {f"{one.type}:{one.key}": values.unpack(one.state) for one in after}

    def _actors(self) -> list[Actor]:
        return [ledgers.ref_of(name).actor() for name in NAMES]

    def _has_jobs(self) -> bool:
        async def queues() -> tuple[QueueView, ...]:
            async with Connection(self._addresses) as connection:
                return await connection.queues()

        counts = [one.counts for one in asyncio.run(queues())]
        return any(many for one in counts for state, many in one.items() if state not in TERMINAL)

    def close(self) -> None:
        """Asks no more."""
        self._app.close()
