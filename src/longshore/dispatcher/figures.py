"""What a running dispatcher shows of itself: its metrics, and whether it can claim jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from longshore._version import __version__
from longshore.core import metering as m
from longshore.core.metering import Sample
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.duties.census import Census
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.meter import Meter
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.sessions.roster import Roster
from longshore.wire.dispatcher_side import FullSession


class Figures:
    """Puts together what is asked for, when it is asked for."""

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        roster: Roster,
        commits: Commits,
        meter: Meter,
        census: Census,
        is_broken: Callable[[], bool],
    ) -> None:
        self._settings, self._clock = environment.settings, environment.clock
        self._own_lease = own_lease
        self._roster = roster
        self._commits = commits
        self._meter = meter
        self._census = census
        self._is_broken = is_broken

    def troubles(self) -> list[str]:
        """Why this dispatcher cannot claim jobs, in words; empty if it can."""
        found = []
        if self._is_broken():
            found.append("a part of the dispatcher broke; its log says how")
        if self._own_lease.is_away or self._commits.is_away:
            found.append("the store does not answer")
        if self._own_lease.lease_s() is None:
            found.append("its own lease in the store has ended")
        return found

    def samples(self) -> Iterator[Sample]:
        """Every metric of this dispatcher."""
        yield Sample(m.INFO, (__version__, "dispatcher"), 1)
        yield Sample(m.READY, (), int(not self.troubles()))
        yield Sample(m.OWN_LEASE, (), self._own_lease.left_s())
        for item, count in self._commits.queued.items():
            yield Sample(m.QUEUED, (item,), count)
        yield Sample(m.QUEUED_BYTES, (), self._commits.queued_bytes)
        yield from self._of_workers()
        yield from self._meter.samples()
        yield from self._census.samples()

    def _of_workers(self) -> Iterator[Sample]:
        slots, used, ahead = Counter[str](), Counter[str](), Counter[str]()
        workers, leases, now = Counter({"serving": 0, "draining": 0}), 0, self._clock.now()
        for session in self._roster:
            workers["draining" if session.draining else "serving"] += 1
            is_leased = isinstance(session, FullSession)
            leases += is_leased and not session.is_lost(now, self._settings.lease_s)
            for name, count in session.info.pools.items():
                [pool] = self._meter.pools.of(name)
                free = session.free.get(name, 0)
                slots[pool] += count
                used[pool] += count - max(0, free)
                ahead[pool] += max(0, -free)
        for metric, counts in ((m.SLOTS, slots), (m.USED_SLOTS, used), (m.HELD_AHEAD, ahead)):
            for pool, count in counts.items():
                yield Sample(metric, (pool,), count)
        for state, count in workers.items():
            yield Sample(m.WORKERS, (state,), count)
        yield Sample(m.LEASES, (), leases)
