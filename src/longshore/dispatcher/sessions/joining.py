"""Joining: has the store attend the workers that sent READY.

Theory. Thousands of workers may send READY at once, and each repeats it while it waits. The store
attends a few at a time. The others wait in line here: a worker's newer READY replaces its older one
and keeps the place. The store's answer counts only if the worker cannot have turned away meanwhile,
and if the dispatcher holds its own lease, without which it may grant none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from longshore.core.worker_limits import check_held, check_worker
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.link import WorkerLink
from longshore.dispatcher.sessions.roster import Roster
from longshore.dispatcher.tasks import Tasks
from longshore.errors import InvalidInput
from longshore.model.worker import Attended, Gone, WorkerInfo
from longshore.wire import messages as m
from longshore.wire.codec import encode
from longshore.wire.dispatcher_side import FullSession

MAX_JOINERS = 2
"""How many workers the store attends at a time. More would delay what is urgent there."""

MAX_CONNECTION_WORKERS = 10_000
"""How many workers may share one connection."""


class Ask(NamedTuple):
    """A worker's READY, from where it came and when."""

    peer: bytes
    info: WorkerInfo
    ready: m.Ready
    at: float


class Joining:
    """Has the store attend workers that sent READY, and calls `welcome` with their sessions."""

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        link: WorkerLink,
        roster: Roster,
        welcome: Callable[[FullSession, m.Ready], Awaitable[None]],
    ) -> None:
        self._id, self._store, self._settings, self._clock, _ = environment
        self._own_lease = own_lease
        self._link = link
        self._roster = roster
        self._welcome = welcome
        self._asks: dict[tuple[UUID, str], Ask] = {}
        self._joining: set[tuple[bytes, UUID]] = set()
        self._joiners = 0
        self._tasks = Tasks()

    def asked(self, peer: bytes, ready: m.Ready) -> None:
        """A worker sent READY."""
        info = _info(ready, self._link.key_of(peer))
        reason = _unfit(ready, info) or self._link.refuses(info)
        others = self._roster.of_peer(peer)
        if len(others) >= MAX_CONNECTION_WORKERS and info.id not in others:
            reason = f"its connection carries {len(others):,} workers; open another one"
        if reason is not None:
            self._link.send(peer, encode(m.Exit(info.id, reason)))
            return
        if (peer, info.id) in self._joining:
            return
        # This keeps the worker's place in line, and the answer goes where it waits now.
        self._asks[info.id, info.key] = Ask(peer, info, ready, self._clock.now())
        if self._joiners < MAX_JOINERS:
            self._joiners += 1
            self._tasks.start(self._join())

    async def _join(self) -> None:
        """Attends the workers in line, one after the other."""
        try:
            while self._asks:
                ask = self._asks.pop(next(iter(self._asks)))
                joining = ask.peer, ask.info.id
                self._joining.add(joining)
                try:
                    await self._own_lease.surviving(partial(self._attend, ask))
                finally:
                    self._joining.discard(joining)
        finally:
            self._joiners -= 1

    async def _attend(self, ask: Ask) -> None:
        peer, info, ready, _ = ask
        if self._own_lease.lease_s() is None or not self._is_waiting(ask):
            return
        answer = await self._store.attend(
            self._id, info, draining=ready.draining, session=ready.session
        )
        if isinstance(answer, Gone):
            self._link.send(peer, encode(m.Gone(info.id, answer.reason)))
        elif isinstance(answer, Attended) and self._may_welcome(ask, answer):
            now = self._clock.now()
            await self._welcome(FullSession(peer, info, answer, now, ready.draining), ready)

    def _may_welcome(self, ask: Ask, answer: Attended) -> bool:
        """Whether the worker still waits here and can get a lease. If not, it asks again."""
        newest = answer.session > self._roster.session_of(ask.ready.worker)
        return self._is_waiting(ask) and newest and self._own_lease.lease_s() is not None

    def _is_waiting(self, ask: Ask) -> bool:
        return self._clock.now() - ask.at < self._settings.lease_s / 2

    async def close(self) -> None:
        """Waits for the store's answers. Workers in line turn to another dispatcher."""
        self._asks.clear()
        await self._tasks.ended()


def _unfit(ready: m.Ready, info: WorkerInfo) -> str | None:
    """Why the dispatcher refuses a worker; None if it does not."""
    if ready.v != m.PROTOCOL_VERSION:
        return f"this dispatcher speaks protocol {m.PROTOCOL_VERSION}, not {ready.v}"
    try:
        check_worker(info)
        check_held(ready.held, ready.unacknowledged)
    except InvalidInput as error:
        return f"READY is refused: {error}"
    return None


def _info(ready: m.Ready, key: str) -> WorkerInfo:
    return WorkerInfo(
        id=ready.worker,
        name=ready.name,
        host=ready.host,
        pid=ready.pid,
        kinds=ready.kinds,
        queues=ready.queues,
        target=ready.target,
        pools=ready.pools,
        process=ready.process,
        key=key,
        gateway=ready.gateway,
        service=ready.service,
        lease_s=ready.lease_s,
        machine=ready.machine,
        resources=ready.resources,
    )
