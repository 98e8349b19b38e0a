"""Schedules and their fires in `MemoryStore`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import structs

from longshore.core.schedule_changes import pause, put
from longshore.core.schedules import FIRES_KEPT
from longshore.core.watching import outcomes_of
from longshore.model.job import Refused
from longshore.model.notice import Notice
from longshore.model.schedule import (
    Decision,
    DueSchedules,
    Examined,
    Fate,
    Fire,
    FireResult,
    Made,
    NewSchedule,
    PendingFire,
    Schedule,
)
from longshore.store.rows import clean
from longshore.testing.memory_reads import MemoryReads


class MemorySchedules(MemoryReads):
    """The verbs about schedules, over two dictionaries."""

    async def put_schedule(self, new: NewSchedule, *, replace: bool = False) -> Schedule | Refused:
        known = self._scheduled(new.name)
        made = put(known, new, self._utc(), replace=replace)
        if isinstance(made, Schedule):
            self._schedules[made.new.id] = made
            self._fires.setdefault(made.new.id, {})
        return made

    async def remove_schedule(self, name: str, app: str | None = None) -> bool:
        known = self._scheduled(name)
        if known is None or app not in (None, known.new.app):
            return False
        del self._schedules[known.new.id], self._fires[known.new.id]
        return True

    async def pause_schedule(
        self, name: str, paused: bool, by: str, note: str = ""
    ) -> Schedule | None:
        known = self._scheduled(name)
        if known is None:
            return None
        made = pause(known, paused, clean(by), clean(note), self._utc())
        self._schedules[known.new.id] = made
        return made

    def _scheduled(self, name: str) -> Schedule | None:
        found = (one for one in self._schedules.values() if one.new.name == name)
        return next(found, None)

    # reading

    async def schedule(self, name: str) -> Examined | None:
        known = self._scheduled(name)
        return None if known is None else self._examined(known)

    async def schedules(
        self, after: str = "", most: int = 100, app: str | None = None
    ) -> list[Schedule]:
        found = [one for one in self._schedules.values() if one.new.name > after]
        found = [one for one in found if app in (None, one.new.app)]
        return sorted(found, key=lambda one: one.new.name)[:most]

    async def fires(
        self, schedule: UUID, before: datetime | None = None, most: int = 20
    ) -> list[Fire]:
        fires = [made.fire for made in self._fires.get(schedule, {}).values()]
        fires = [fire for fire in fires if before is None or fire.nominal_at < before]
        return sorted(fires, key=lambda fire: fire.nominal_at, reverse=True)[:most]

    async def fires_between(self, schedule: UUID, first: datetime, last: datetime) -> list[Fire]:
        fires = [made.fire for made in self._fires.get(schedule, {}).values()]
        within = [
            fire
            for fire in fires
            if fire.nominal_at <= last and (fire.last_at or fire.nominal_at) >= first
        ]
        return sorted(within, key=lambda fire: fire.nominal_at)

    async def fire_of(self, subject: UUID) -> Fire | None:
        every = (made.fire for some in self._fires.values() for made in some.values())
        return next((fire for fire in every if fire.subject == subject), None)

    async def due_schedules(self, most: int = 500) -> DueSchedules:
        now = self._utc()
        waiting = [(one.look_at, one) for one in self._schedules.values() if one.look_at]
        due = sorted((at, one.new.id) for at, one in waiting if at <= now)[:most]
        examined = tuple(self._examined(self._schedules[id]) for _, id in due)
        following = min((at for at, _ in waiting if at > now), default=None)
        if len(due) == most:
            return DueSchedules(examined, 0.0)
        next_s = None if following is None else (following - now).total_seconds()
        return DueSchedules(examined, next_s)

    async def pending_fires(self, older_than_s: float, most: int = 500) -> list[PendingFire]:
        before = self._utc() - timedelta(seconds=older_than_s)
        pending = [
            (made.fire.decided_at or before, PendingFire(id, made.fire.nominal_at, made.body))
            for id, some in self._fires.items()
            for made in some.values()
            if made.fire.pending
        ]
        old = [one for one in pending if one[0] <= before]
        return [fire for _, fire in sorted(old, key=lambda one: one[0])][:most]

    def _examined(self, schedule: Schedule) -> Examined:
        fires = [made.fire for made in self._fires[schedule.new.id].values()]
        open = sorted(
            (fire for fire in fires if not fire.settled),
            key=lambda fire: (fire.outcome is None, fire.nominal_at),
        )
        return Examined(schedule, tuple(open), self._utc())

    # what is decided

    async def record_fires(self, decisions: Sequence[Decision]) -> list[bool]:
        return [self._record_decision(one) for one in decisions]

    def _record_decision(self, decision: Decision) -> bool:
        known = self._schedules.get(decision.schedule)
        if known is None or known.version != decision.version:
            return False
        self._schedules[decision.schedule] = structs.replace(
            known, version=known.version + 1, state=decision.state, look_at=decision.look_at
        )
        fires = self._fires[decision.schedule]
        fires.update({made.fire.nominal_at: made for made in decision.made})
        settled = sorted(at for at, made in fires.items() if made.fire.settled)
        for at in settled[:-FIRES_KEPT]:
            del fires[at]
        return True

    async def fires_submitted(self, results: Sequence[FireResult]) -> None:
        for one in results:
            made = self._fires.get(one.schedule, {}).get(one.nominal_at)
            if made is None or not made.fire.pending:
                continue
            fire = structs.replace(made.fire, pending=False)
            if one.refused:
                why = clean(one.refused)
                fate = Fate.SKIPPED
                fire = structs.replace(fire, fate=fate, why=why, subject=None, settled=True)
                self._look_now(one.schedule)
            self._fires[one.schedule][one.nominal_at] = Made(fire)

    def _tell_schedules(self, notices: Sequence[Notice]) -> bool:
        """Schedules hear how what they submitted ended; answers whether any did."""
        outcomes = outcomes_of(notices)
        for schedule, subject, state in outcomes:
            for at, made in self._fires.get(schedule, {}).items():
                if made.fire.subject == subject:
                    fire = structs.replace(
                        made.fire, outcome=state, ended_at=self._utc(), settled=False
                    )
                    self._fires[schedule][at] = structs.replace(made, fire=fire)
            self._look_now(schedule)
        return bool(outcomes)

    def _look_now(self, schedule: UUID) -> None:
        known = self._schedules.get(schedule)
        if known is not None:
            now = self._utc()
            look_at = min(known.look_at or now, now)
            self._schedules[schedule] = structs.replace(
                known, version=known.version + 1, look_at=look_at
            )
