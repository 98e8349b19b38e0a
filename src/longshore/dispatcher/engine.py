"""The dispatcher: stateless, one of many equals.

Three things run side by side. The *pump* moves jobs: finishes, submits and claims, one transaction
after the other. The *keeper* keeps time: leases, losses, cancels, delays. The *attendant* and the
*requests* answer what workers and clients say. They share a roster, which is memory only; whatever
must survive is in the store before anybody is told of it.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from uuid import UUID

from longshore.core.intake import Patience
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.attendant import Attendant
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.keeper import Duty, Keeper
from longshore.dispatcher.losses import Losses
from longshore.dispatcher.plain import PlainAttendant
from longshore.dispatcher.plain_clients import PlainClients
from longshore.dispatcher.pulse import Alarm, Pulse
from longshore.dispatcher.pump import Pump
from longshore.dispatcher.requests import Listen, Requests
from longshore.dispatcher.roster import Roster
from longshore.dispatcher.runtime import DispatcherRuntime
from longshore.dispatcher.service import Service
from longshore.dispatcher.settings import DispatcherSettings
from longshore.dispatcher.waiters import Waiters
from longshore.errors import StoreLost, StoreUnavailable
from longshore.model.ids import make_id
from longshore.ports import Clock, HasEnded, Link, OnLost, Store

log = logging.getLogger("longshore.dispatcher")


class Dispatcher:
    """Attends workers and answers clients, over one store that is open already."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        *,
        id: UUID,
        name: str,
        clock: Clock,
        random: Random,
        on_lost: OnLost = lambda lost: None,
        has_ended: HasEnded = lambda process: False,
    ) -> None:
        self.id = id
        self.broken = asyncio.Event()
        """Set when the store is lost, or a part failed unforeseen: the process must end."""
        self.lost: StoreLost | None = None
        self._settings = settings
        self._store = store
        self._clock = clock
        self._random = random
        patience = Patience(settings.seat_wait_s, settings.max_seat_wait_s)
        self._scheduler = Scheduler(settings.max_batch, patience)
        self._roster = Roster(self._scheduler)
        self._tasks: list[asyncio.Task[None]] = []
        pulse = Pulse(settings, clock, self._lose_store)
        self._waiters = waiters = Waiters()
        due = Alarm(clock)
        self._pump = self._make_pump(pulse)
        self._losses = Losses(store, settings, self._roster, self._pump, pulse, on_lost)
        self._plain = self._make_plain(pulse)
        self._attendant = self._make_attendant(pulse)
        self._attendant.ends = self._plain.ends = Ends(
            settings, random, self._pump, due, self._attendant.acknowledge
        )
        self._keeper = Keeper(
            store,
            settings,
            id,
            name,
            clock=clock,
            random=random,
            roster=self._roster,
            pump=self._pump,
            pulse=pulse,
            waiters=waiters,
            attendant=self._attendant,
            plain=self._plain,
            losses=self._losses,
            due=due,
            has_ended=has_ended,
        )
        self._plain_clients = PlainClients(settings, self._new_id, self._pump, waiters)
        self._runtime = DispatcherRuntime(
            settings, self._roster, self._pump, waiters, self._keeper, due
        )
        service = Service(store, settings, id, clock.utc, self._runtime, waiters)
        self._requests = Requests(service, settings, clock, pulse, self._plain_clients)

    def _make_pump(self, pulse: Pulse) -> Pump:
        return Pump(
            self._store,
            self.id,
            max_batch=self._settings.max_batch,
            max_batch_bytes=self._settings.max_batch_bytes,
            overlap_from=self._settings.overlap_from,
            slot_wait_s=self._settings.seat_wait_s,
            random=self._random,
            scheduler=self._scheduler,
            give=lambda seat, attempts: self._attendant.give(seat, attempts),
            tell=self._waiters.tell,
            on_outage=pulse.saw_outage,
        )

    def _make_plain(self, pulse: Pulse) -> PlainAttendant:
        return PlainAttendant(
            self._store,
            self._settings,
            self.id,
            clock=self._clock,
            new_id=self._new_id,
            roster=self._roster,
            pump=self._pump,
            pulse=pulse,
            losses=self._losses,
        )

    def _make_attendant(self, pulse: Pulse) -> Attendant:
        return Attendant(
            self._store,
            self._settings,
            self.id,
            self._clock,
            self._roster,
            self._pump,
            pulse,
            self._losses,
            self._plain,
        )

    async def start(self, listen: Listen, backend: str, frontend: str) -> tuple[Link, Link]:
        """Renews its own lease once, then listens for workers and clients."""
        await self._keeper.renew()
        await self._keeper.look_around()
        self._attendant.link = listen(backend, self._attendant.receive)
        self._plain.link = self._attendant.link
        try:
            self._frontend = self._requests.listen(listen, frontend)
        except BaseException:
            self._attendant.link.close()
            raise
        for duty in [self._pump.run, *self._keeper.duties()]:
            self._spawn(duty)
        return self._attendant.link, self._frontend

    def _spawn(self, duty: Duty) -> None:
        async def run() -> None:
            await duty()

        task = asyncio.create_task(run())
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("a part of the dispatcher broke", exc_info=task.exception())
            self.broken.set()

    def note_crew(self, trouble: str) -> None:
        """Keeps in mind, for `why`, what keeps the workers beside it from starting, if anything."""
        self._runtime.crew_trouble = trouble

    def _lose_store(self, error: StoreLost) -> None:
        if self.lost is None:
            log.critical("the dispatcher ends: %s", error)
        self.lost = error
        self.broken.set()

    async def stop(self) -> None:
        """Commits what is under way, lets go of the sockets and retires in good order."""
        await self._requests.close()
        await self._plain_clients.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._attendant.logbook.close()
            await self._pump.drain()
            await self._attendant.close()
            await self._plain.close()
            await self._retire()
        except StoreUnavailable as error:
            log.warning("left without saying so in the store: %s", error)
        self._attendant.link.close()
        self._frontend.close()

    async def _retire(self) -> None:
        await self._losses.tell_again()
        if self._losses.all_told:
            # Otherwise the others find it silent, and declare those losses for it.
            await self._store.retire(self.id)

    def _new_id(self) -> UUID:
        unix_ms = int(self._clock.utc().timestamp() * 1000)
        return make_id(unix_ms, self._random.randbytes(10))
