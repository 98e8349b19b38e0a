"""Schedules: what clients ask about them (see `service`), and the look at those that are due.

A look is three steps, each of which may be the last: decide and record (the store takes it once),
submit what was recorded, and tell the store so. What is left after a step, any dispatcher finds as
a pending fire.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from typing import Final, assert_never

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.access import LOCAL, Asker, check_submit, check_watchers
from longshore.core.group_limits import check_part, named
from longshore.core.limits import check_length, check_own_fields, check_submission
from longshore.core.schedule_limits import (
    MAX_BACKFILLED,
    MAX_NOTE_CHARS,
    check_schedule,
    check_zoned,
)
from longshore.core.schedule_words import schedule_text
from longshore.core.schedules import (
    MOST_TIMES,
    backfilled,
    decide,
    read_body,
    triggered,
    triggered_id,
)
from longshore.dispatcher.actor_service import Caller
from longshore.dispatcher.run_by import run_by_shapes
from longshore.dispatcher.runtime_protocol import Runtime
from longshore.errors import Conflict, LongshoreError, NotFound, Unavailable, from_code
from longshore.model.group import GroupPart, GroupVerdict
from longshore.model.job import CancelVerdict, Refused, Submission, Submitted
from longshore.model.program import FREE_KINDS
from longshore.model.schedule import (
    Decision,
    Examined,
    Fire,
    FireResult,
    NewSchedule,
    PendingFire,
    Schedule,
    ScheduledBody,
    ScheduleView,
    Synced,
)
from longshore.payload.described_programs import check_described
from longshore.payload.group_references import check_dependencies
from longshore.payload.references import refuse_outside_a_group
from longshore.payload.schemas import check_arguments
from longshore.payload.values import within
from longshore.ports import Store
from longshore.wire import schedule_messages as s

log = logging.getLogger("longshore.dispatcher")

LEFT_AFTER_S: Final = 5.0
"""A submit that was decided so long ago and not made was left by a dispatcher that died."""
TRY_AGAIN_S: Final = 60.0
"""A schedule that cannot be read here is looked at again after this."""
MOST_TRIES: Final = 20


class ScheduleService:
    """The use cases about schedules, over one store."""

    def __init__(self, store: Store, settings: DispatcherSettings, runtime: Runtime) -> None:
        self._store = store
        self._settings = settings
        self._runtime = runtime
        self._asker = LOCAL

    def asked_by(self, asker: Asker, store: Store) -> ScheduleService:
        """The same for one who asks, over a store that says so."""
        service = copy(self)
        service._asker, service._store = asker, store
        return service

    # what clients ask

    async def put(self, request: s.PutSchedule, caller: Caller) -> Schedule:
        """Makes a schedule, or changes one."""
        new = self._checked(request.new, caller)
        made = await self._store.put_schedule(new, replace=request.replace)
        if isinstance(made, Refused):
            raise from_code(made.code, made.message)
        self._runtime.schedules_changed()
        return made

    def _checked(self, new: NewSchedule, caller: Caller) -> NewSchedule:
        """The schedule as it is stored; raises if it, or what it submits, cannot be accepted."""
        check_schedule(new)
        try:
            if new.job is not None:
                refuse_outside_a_group(new.job)
                self._check_job(new.job, caller)
            elif new.group is not None:
                self._check_group(new.group, caller)
        except LongshoreError as error:
            raise type(error)(f"schedule '{new.name}': {error}") from None
        by = "" if self._asker is LOCAL else self._asker.name
        return structs.replace(new, by=by)

    def _check_job(self, job: Submission, caller: Caller) -> None:
        check_submission(job)
        check_submit(self._asker, job.queue, job.kind)
        check_watchers(self._asker, job.options.watchers)
        check_own_fields(job)
        if len(job.args) > (limit := self._settings.max_value_bytes):
            within(job.args, f"the arguments of job '{job.kind}'", limit)
        if job.kind in FREE_KINDS:
            check_described(job)
        elif (info := self._runtime.kinds().get(job.kind)) is not None:
            check_arguments(job, info)
        self._runtime.check_lane(job, caller)

    def _check_group(self, part: GroupPart, caller: Caller) -> None:
        edges = sum(len(node.after) for node in part.nodes)
        check_part(part, edges, self._settings.max_group_jobs, self._settings.max_group_edges)
        check_watchers(self._asker, part.head.watchers)
        check_dependencies(part)
        for place, jobs in run_by_shapes(part).items():
            for job in jobs:
                try:
                    self._check_job(job, caller)
                except LongshoreError as error:
                    raise named(part.head, part.nodes[place].key, error) from None

    async def sync(self, request: s.SyncSchedules, caller: Caller) -> Synced:
        """Makes the schedules of an app those that it declares; touches no others."""
        wanted = {
            one.name: self._checked(structs.replace(one, app=request.app), caller)
            for one in request.schedules
        }
        known = {one.new.name: one for one in await self._of_app(request.app)}
        changed: list[str] = []
        added: list[str] = []
        unchanged = 0
        for name, new in wanted.items():
            before = known.get(name)
            if before is not None and before.new.is_like(new):
                unchanged += 1
                continue
            made = await self._store.put_schedule(new, replace=True)
            if isinstance(made, Refused):
                raise from_code(made.code, made.message)
            (added if before is None else changed).append(name)
        removed = [name for name in known if name not in wanted]
        for name in removed:
            await self._store.remove_schedule(name, request.app)
        self._runtime.schedules_changed()
        return Synced(tuple(added), tuple(changed), tuple(removed), unchanged)

    async def _of_app(self, app: str) -> list[Schedule]:
        found: list[Schedule] = []
        while page := await self._store.schedules(found[-1].new.name if found else "", 500, app):
            found += page
        return found

    async def pause(self, request: s.PauseSchedule) -> Schedule:
        """Pauses or resumes a schedule."""
        check_length("the note of a pause", request.note, MAX_NOTE_CHARS)
        by = self._asker.name
        made = await self._store.pause_schedule(request.name, request.paused, by, request.note)
        if made is None:
            raise _no_schedule(request.name)
        self._runtime.schedules_changed()
        return made

    async def remove(self, request: s.RemoveSchedule) -> bool:
        """Removes a schedule; answers whether there was one."""
        return await self._store.remove_schedule(request.name)

    async def show(self, request: s.ShowSchedule) -> ScheduleView:
        """One schedule, with its newest fires."""
        examined = await self.examined(request.name)
        newest = await self._store.fires(examined.schedule.new.id, None, request.most)
        text = schedule_text(examined, newest)
        schedule, now = examined.schedule, examined.now
        return ScheduleView(schedule=schedule, fires=tuple(newest), now=now, text=text)

    async def listed(self, request: s.ListSchedules) -> list[Schedule]:
        """Schedules by name."""
        return await self._store.schedules(request.after, request.most, request.app)

    async def examined(self, name: str) -> Examined:
        """A schedule as it is now; raises if there is none."""
        found = await self._store.schedule(name)
        if found is None:
            raise _no_schedule(name)
        return found

    async def trigger(self, request: s.TriggerSchedule) -> Fire:
        """Submits what a schedule submits, now. A repeat answers what the first did."""
        for _ in range(MOST_TRIES):
            examined = await self.examined(request.name)
            known = await self._store.fire_of(triggered_id(request.id))
            if known is not None:
                return known
            decision = triggered(examined, request.id)
            if all(await self._store.record_fires([decision])):
                await self.submit_fires(_pending([decision]))
                return decision.made[0].fire
        raise _too_busy(request.name)

    async def backfill(self, request: s.BackfillSchedule) -> tuple[Fire, ...]:
        """Queues the times of a span that submitted nothing, unless it is only to say which."""
        check_zoned("the first time", request.first)
        check_zoned("the last time", request.last)
        for _ in range(MOST_TRIES):
            examined = await self.examined(request.name)
            id = examined.schedule.new.id
            known = await self._store.fires_between(id, request.first, request.last)
            span = (request.first, request.last)
            decision = backfilled(examined, *span, known, MAX_BACKFILLED)
            fires = tuple(one.fire for one in decision.made if not one.fire.settled)
            if request.dry_run:
                return fires
            if all(await self._store.record_fires([decision])):
                self._runtime.schedules_changed()
                return fires
        raise _too_busy(request.name)

    # what is due

    async def look(self) -> float | None:
        """Decides and submits what is due; answers after how many seconds more will be."""
        due = await self._store.due_schedules()
        if not due.examined:
            return due.next_s
        decisions: list[Decision] = []
        times, waits_s = 0, [] if due.next_s is None else [due.next_s]
        for one in due.examined:
            decision = _decided(one)
            decisions.append(decision)
            if decision.look_at is not None:
                waits_s.append(max(0.0, (decision.look_at - one.now).total_seconds()))
            times += sum(made.fire.count for made in decision.made)
            if times >= MOST_TIMES:
                # Who decides for long keeps others from their turn, workers' heartbeats too.
                await self._carry_out(decisions)
                decisions, times = [], 0
        await self._carry_out(decisions)
        return min(waits_s, default=None)

    async def _carry_out(self, decisions: Sequence[Decision]) -> None:
        """Records what was decided, and submits what counts of it."""
        if not decisions:
            return
        counts = await self._store.record_fires(decisions)
        made = [one for one, is_made in zip(decisions, counts, strict=True) if is_made]
        await self.submit_fires(_pending(made))
        for decision in made:
            await self._cancel(decision)

    async def submit_left(self) -> None:
        """Makes the submits that a dispatcher decided and did not make."""
        if left := await self._store.pending_fires(LEFT_AFTER_S):
            await self.submit_fires(left)

    async def submit_fires(self, fires: Sequence[PendingFire]) -> None:
        """Submits what was decided, and tells the store so."""
        bodies = [(fire, read_body(fire.body)) for fire in fires]
        try:
            results = await self._submit_jobs([one for one in bodies if one[1].job is not None])
            for fire, body in bodies:
                if body.group is not None:
                    results.append(await self._submit_group(fire, body.group))
        except Unavailable as error:
            # They stay pending, and are submitted once there is room.
            log.warning("what schedules submit has to wait: %s", error)
            return
        if results:
            await self._store.fires_submitted(results)

    async def _submit_jobs(
        self, fires: Sequence[tuple[PendingFire, ScheduledBody]]
    ) -> list[FireResult]:
        jobs = [body.job for _, body in fires if body.job is not None]
        if not jobs:
            return []
        self._runtime.check_room(len(jobs), sum(len(job.args) for job in jobs))
        answers = await self._runtime.submit(jobs)
        return [
            FireResult(fire.schedule, fire.nominal_at, _refusal(answer))
            for (fire, _), answer in zip(fires, answers, strict=True)
        ]

    async def _submit_group(self, fire: PendingFire, part: GroupPart) -> FireResult:
        jobs = [node.job for node in part.nodes]
        self._runtime.check_room(len(jobs), sum(len(job.args) for job in jobs))
        with self._runtime.storing(jobs):
            answer = await self._store.submit_group(part)
        if isinstance(answer, Refused):
            return FireResult(fire.schedule, fire.nominal_at, f"it was refused: {answer.message}")
        self._runtime.group_stored(part, answer)
        return FireResult(fire.schedule, fire.nominal_at)

    async def _cancel(self, decision: Decision) -> None:
        by = "its schedule"
        jobs = [one.subject for one in decision.cancels if one.subject and not one.is_group]
        if jobs:
            verdicts = await self._store.cancel(jobs, by=by)
            self._runtime.cancels_made(
                [id for id, verdict in verdicts if id and verdict is CancelVerdict.CANCELLED],
                [id for id, verdict in verdicts if id and verdict is CancelVerdict.CANCELLING],
            )
        for one in decision.cancels:
            if one.subject and one.is_group:
                verdict = await self._store.cancel_group(one.subject, by=by)
                if verdict is GroupVerdict.CANCELLING:
                    self._runtime.groups_changed()


def _decided(examined: Examined) -> Decision:
    """What a look decides. A schedule that cannot be read here keeps no other from its time."""
    try:
        return decide(examined)
    except (LongshoreError, ValueError, OverflowError) as error:
        schedule = examined.schedule
        log.error("schedule '%s' cannot be read here: %s", schedule.new.name, error)
        again = examined.now + timedelta(seconds=TRY_AGAIN_S)
        return Decision(schedule.new.id, schedule.version, schedule.state, again)


def _pending(decisions: Sequence[Decision]) -> list[PendingFire]:
    return [
        PendingFire(one.schedule, made.fire.nominal_at, made.body)
        for one in decisions
        for made in one.made
        if made.fire.pending
    ]


def _refusal(answer: Submitted | Refused) -> str:
    if isinstance(answer, Refused):
        return f"it was refused: {answer.message}"
    if answer.existing:
        return f"job {answer.number}, which has the same unique key, had not ended"
    return ""


def _no_schedule(name: str) -> NotFound:
    return NotFound(
        f"there is no schedule '{name}'; `longshore schedules ls` lists those there are"
    )


def _too_busy(name: str) -> Conflict:
    return Conflict(f"schedule '{name}' changes all the time; try again")


async def perform_for_schedules(
    service: ScheduleService, request: s.ScheduleRequest, caller: Caller
) -> object:
    """What OK carries in answer to a request about schedules."""
    match request:
        case s.PutSchedule():
            return await service.put(request, caller)
        case s.SyncSchedules():
            return await service.sync(request, caller)
        case s.PauseSchedule():
            return await service.pause(request)
        case s.TriggerSchedule():
            return await service.trigger(request)
        case s.BackfillSchedule():
            return await service.backfill(request)
        case s.RemoveSchedule():
            return await service.remove(request)
        case s.ShowSchedule():
            return await service.show(request)
        case s.ListSchedules():
            return await service.listed(request)
        case _:
            assert_never(request)
