"""Limits of `MemoryStore`: slots are counted by the jobs that run, so none is ever written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from longshore.core.key_views import MOST_COUNTED, Holder, KeyWaits, key_view
from longshore.core.lane_rules import lane_keys
from longshore.core.lifecycle import OWNED
from longshore.core.limited_starts import Behind, KeyState, Start, Starts, soonest
from longshore.model.ends import End
from longshore.model.job import JobState
from longshore.model.limits import JobLimit, KeyView, LimitRule, LimitsOpened
from longshore.model.waited import Stay
from longshore.ports import Hint
from longshore.store.rows import micros
from longshore.testing.memory_reads import MemoryReads
from longshore.testing.memory_rows import JobRow


class MemoryLimits(MemoryReads):
    """The verbs about limits, and what claims ask."""

    _open_at: int | None = None
    _closed: set[int]

    async def set_paused(self, queue: str, paused: bool) -> None:
        self._paused[queue] = paused
        self._note_pause(queue, paused, self._utc())
        self._hint(*[Hint.WORK] * (not paused))

    async def add_queue_waits(self, waits: Mapping[tuple[str, str], float]) -> None:
        for (queue, cause), s in waits.items():
            of = self._queue_waits[queue]
            of[str(cause)] = of.get(str(cause), 0.0) + s

    async def set_limit(self, rule: LimitRule) -> None:
        self._now = self._utc()
        self._limit_rules[rule.pattern] = structs.replace(rule, set_at=self._now)

    async def remove_limit(self, pattern: str) -> bool:
        return self._limit_rules.pop(pattern, None) is not None

    async def limit_rules(self) -> list[LimitRule]:
        return [rule for _, rule in sorted(self._limit_rules.items())]

    async def limit_key(self, key: str) -> KeyView:
        now = self._utc()
        holders = self._holders(key)
        waiting = self._behind(now, [key])
        rows = [*holders, *waiting]
        limit = _limit_of(rows[0], key) if rows else JobLimit(key)
        held = [Holder(row.job.number, micros(row.job.started_at or now)) for row in holders]
        rules, even_at = self._limit_rules.values(), self._even_at.get(key, 0)
        return key_view(limit, rules, held, even_at, micros(now), self._waits_of(key, now))

    def _waits_of(self, key: str, now: datetime) -> KeyWaits:
        known = self._key_waits.get(key, KeyWaits())
        stays = [row.behind for row in self._where(lambda row: row.behind is not None)]
        since = [one.since for one in stays if one is not None and one.key == key][:MOST_COUNTED]
        return known._replace(
            waiting=len(since), waiting_us=sum(micros(now) - micros(at) for at in since)
        )

    def _go_behind(self, row: JobRow, key: str) -> None:
        if row.behind is None:
            row.behind = Stay(key, self._now)

    def _go_behind_others(self, row: JobRow) -> None:
        """A new job of a key goes behind those that wait for it already."""
        if row.state is JobState.READY and row.job.options.limits:
            rows = self._where(lambda row: row.behind is not None)
            keys = {one.behind.key for one in rows if one.behind is not None}
            found = (one.key for one in row.job.options.limits if one.key in keys)
            if (key := next(found, None)) is not None:
                self._go_behind(row, key)

    def _leave_key(self, row: JobRow) -> None:
        """A job waits behind no key any more; how long it did is added up."""
        stay = row.leave_key(self._now)
        if stay is not None:
            us = micros(self._now) - micros(stay.since)
            known = self._key_waits.get(stay.key, KeyWaits())
            self._key_waits[stay.key] = known._replace(
                waited_us=known.waited_us + us, stays=known.stays + 1
            )

    async def limit_keys(
        self, after: str = "", most: int = 25, *, waited_for: bool = False
    ) -> list[str]:
        now = self._utc()
        live = self._where(lambda row: row.state in OWNED or row.state is JobState.READY)
        keys = {limit.key for row in live for limit in row.job.options.limits}
        found = {key for key in keys if self._behind(now, [key])}
        if not waited_for:
            found |= {key for key in keys if self._holders(key)} | set(self._even_at)
        return sorted(key for key in found if key > after)[:most]

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        now = self._now = self._utc()
        ready, open_at = self._opened(now)
        next_s = None if open_at is None else (open_at - micros(now)) / 1e6
        return LimitsOpened(dict(ready), next_s)

    def _opened(self, now: datetime) -> tuple[Counter[int], int | None]:
        """The ready jobs with limits that may start now, by lane, and when the next one may."""
        rows = self._where(lambda row: row.state is JobState.READY and not row.is_expired(now))
        ready = [row for row in rows if self._is_limited(row)]
        decide = self._limited_starts(ready, now)
        lanes: Counter[int] = Counter()
        times: list[int | None] = []
        for row in sorted(ready, key=lambda row: row.order):
            found = decide.of(row.job.options.limits, self._lane_keys(row))
            if isinstance(found, Start):
                lanes[row.lane.hash] += 1
                self._leave_key(row)
            else:
                times.append(getattr(found, "until", None))
                if isinstance(found, Behind) and row.behind and row.behind.key != found.key:
                    self._leave_key(row)
        return lanes, soonest(times)

    def _startable(self, rows: Iterable[JobRow], most: int) -> list[JobRow]:
        """The first of these jobs, in order, that limits let start; it counts them as started."""
        rows = sorted(rows, key=lambda row: row.order)
        limited = [row for row in rows if self._is_limited(row)]
        decide = self._limited_starts(limited, self._now) if limited else None
        found: list[JobRow] = []
        for row in rows:
            if len(found) == most:
                break
            if decide is not None and self._is_limited(row):
                answer = decide.of(row.job.options.limits, self._lane_keys(row))
                if not isinstance(answer, Start):
                    self._open_at = soonest([self._open_at, getattr(answer, "until", None)])
                    if decide.closed(self._lane_keys(row)):
                        self._closed.add(row.lane.hash)
                    elif isinstance(answer, Behind):
                        self._go_behind(row, answer.key)
                    continue
            found.append(row)
        if decide is not None:
            self._even_at |= decide.passed
        return found

    def _limits_of(self, end: End) -> bool:
        row = self._jobs.get(end.job)
        return row is not None and self._is_limited(row)

    def _is_limited(self, row: JobRow) -> bool:
        """Whether only a claim that asks for limits may start this job."""
        return bool(row.job.options.limits or self._lane_keys(row))

    def _waits_for_claim(self, row: JobRow) -> bool:
        """Whether only a claim starts a job, and no end of one that it depends on."""
        return self._is_limited(row) or bool(row.job.options.fair)

    def _keys_of(self, row: JobRow) -> set[str]:
        """The keys that a job counts for, each once."""
        return {limit.key for limit in row.job.options.limits}.union(self._lane_keys(row))

    def _lane_keys(self, row: JobRow) -> tuple[str, ...]:
        return lane_keys(row.job.queue, row.job.kind, self._limit_rules.values())

    def closed_lanes(self) -> dict[int, str]:
        """The lanes that a rule for their kind or queue closes now, with the key that is full."""
        keys = {row.lane.hash: self._lane_keys(row) for row in self._jobs.values()}
        decide = self._limited_starts([*self._jobs.values()], self._utc())
        full = {lane: decide.full_of(of_lane) for lane, of_lane in keys.items()}
        return {lane: key for lane, key in full.items() if key is not None}

    def _seconds_to(self, at: int | None) -> float | None:
        return None if at is None else (at - micros(self._now)) / 1e6

    def _limited_starts(self, rows: Sequence[JobRow], now: datetime) -> Starts:
        keys = {limit.key for row in rows for limit in row.job.options.limits}
        keys |= {key for row in rows for key in self._lane_keys(row)}
        running = self._where(self._has_slots) if keys else []
        held = Counter(key for row in running for key in self._keys_of(row))
        states = {
            key: KeyState(set(range(1, held[key] + 1)), self._even_at.get(key, 0)) for key in keys
        }
        return Starts(list(self._limit_rules.values()), states, micros(now))

    def _holders(self, key: str) -> list[JobRow]:
        """The jobs that hold a slot of a key."""
        rows = self._where(lambda row: self._has_slots(row) and self._has_key(row, key))
        return sorted(rows, key=lambda row: row.job.number)

    def _has_slots(self, row: JobRow) -> bool:
        """Whether a job holds a slot of each key that it counts for."""
        return row.state in OWNED

    def _has_key(self, row: JobRow, key: str) -> bool:
        """Whether a job counts for a key: it names it, or it is in a lane of it that has a rule."""
        return any(limit.key == key for limit in row.job.options.limits) or (
            key in self._lane_keys(row)
        )

    def _behind(self, now: datetime, keys: Collection[str]) -> list[JobRow]:
        """The ready jobs of these keys that may not start now."""
        rows = self._where(
            lambda row: row.state is JobState.READY and any(self._has_key(row, key) for key in keys)
        )
        rows = sorted(rows, key=lambda row: row.order)
        decide = self._limited_starts(rows, now)
        return [
            row
            for row in rows
            if not isinstance(decide.of(row.job.options.limits, self._lane_keys(row)), Start)
        ]


def _limit_of(row: JobRow, key: str) -> JobLimit:
    return next((one for one in row.job.options.limits if one.key == key), JobLimit(key))
