"""Schedules: every nominal time has one fate, and each that was submitted has one run.

Nominal times are counted anew: all multiples of the intervals, from the moment at which the store
accepted the schedule to its end. What says "submitted" must have a job, and each job a fire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from longshore.core.lifecycle import TERMINAL
from longshore.model.schedule import Fate, Fire, Schedule
from longshore.ports import Store
from longshore.testing.simulation.database import at_once
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.schedule_plans import SchedulePlan
from longshore.testing.simulation.snapshots import Snapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALL: Final = 10_000
_RAN: Final = (Fate.SUBMITTED, Fate.CAUGHT_UP)


class ScheduleCheck:
    """Knows which schedules there are, and which runs they have."""

    def __init__(self, plans: Iterable[SchedulePlan], store: Store) -> None:
        self._plans = {plan.name: plan for plan in plans}
        self._store = store
        self._made: dict[str, Schedule] = {}
        self._by_hand: set[UUID] = set()
        self._runs: dict[UUID, tuple[str, datetime]] = {}
        """The schedule and the nominal time of each job that one submitted."""
        self._known: set[UUID] = set()

    # what clients were told

    def made(self, schedule: Schedule) -> None:
        """A schedule was accepted."""
        self._made[schedule.new.name] = schedule

    def triggered(self, subject: UUID) -> None:
        """A run by hand was accepted."""
        self._by_hand.add(subject)

    # what the store did

    def check(self, shots: Mapping[UUID, Snapshot]) -> None:
        """No two runs of a schedule are live at once, unless they may be."""
        for job in shots.keys() - self._known:
            self._known.add(job)
            view = at_once(self._store.job(job))
            if view is not None and (scheduled := view.options.scheduled) is not None:
                self._runs[job] = scheduled.schedule, scheduled.nominal_at
        live = Counter(
            name for job, (name, _) in self._runs.items() if shots[job].state not in TERMINAL
        )
        for name, count in live.items():
            if count > 1 and self._plans[name].runs_alone:
                raise BrokenPromise(Promise.FATES, f"{count} runs of {name} are live at once")

    # the end

    def unsettled(self) -> str | None:
        """A schedule that has something left to do, in words."""
        for name in self._plans:
            examined = at_once(self._store.schedule(name))
            if examined is None:
                return f"{name} is not made yet"
            if examined.schedule.look_at is not None and examined.schedule.state.paused_at is None:
                return f"{name} is to be looked at {examined.schedule.look_at}"
            if any(_is_open(fire) for fire in examined.fires):
                return f"{name} has fires that are not settled: {examined.fires}"
        return None

    def check_end(self) -> None:
        """When all is over: each nominal time has one fate, and each run a fire."""
        for name, schedule in self._made.items():
            fires = at_once(self._store.fires(schedule.new.id, None, _ALL))
            self._check_fates(name, schedule, fires)
            self._check_runs(name, fires)

    def _check_fates(self, name: str, schedule: Schedule, fires: Sequence[Fire]) -> None:
        state = at_once(self._store.schedules("", _ALL))
        decided_to = next(one.state.decided_to for one in state if one.new.name == name)
        times = set(_nominal_times(self._plans[name], schedule.created_at))
        expected = {at for at in times if at <= decided_to}
        if schedule.look_at is None and expected != times:
            raise BrokenPromise(Promise.FATES, f"{name} stopped before its last time")
        found = Counter(at for fire in fires for at in self._times_of(fire, times))
        for at in expected | found.keys():
            if found[at] != (at in expected):
                text = f"{name} has {found[at]} fates for {at}, which is {at in expected}: {fires}"
                raise BrokenPromise(Promise.FATES, text)

    def _times_of(self, fire: Fire, times: set[datetime]) -> list[datetime]:
        """The nominal times that a fire is the fate of."""
        if fire.subject in self._by_hand or "by hand" in fire.why:
            return []
        if fire.count == 1:
            return [fire.nominal_at]
        last = fire.last_at or fire.nominal_at
        covered = [at for at in times if fire.nominal_at <= at <= last]
        if len(covered) != fire.count:
            text = f"one fate is for {fire.count} times, of which there are {len(covered)}: {fire}"
            raise BrokenPromise(Promise.FATES, text)
        return covered

    def _check_runs(self, name: str, fires: Sequence[Fire]) -> None:
        submitted = {fire.subject: fire.nominal_at for fire in fires if fire.fate in _RAN}
        runs = {job: at for job, (of, at) in self._runs.items() if of == name}
        if submitted != runs:
            odd = submitted.items() ^ runs.items()
            raise BrokenPromise(Promise.FATES, f"fires and runs of {name} differ in {odd}")


def _is_open(fire: Fire) -> bool:
    return fire.pending or (fire.subject is not None and not fire.settled)


def _nominal_times(plan: SchedulePlan, after: datetime) -> Iterator[datetime]:
    ends_at = plan.new.timing.ends_at
    assert ends_at is not None, "a simulated schedule ends"
    for spec in plan.new.timing.specs:
        every = timedelta(seconds=spec.every_s)
        at = _EPOCH + ((after - _EPOCH) // every + 1) * every
        while at <= ends_at:
            yield at
            at += every
