"""Schedules and their fires as JSON, for the command line and HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from longshore.client.jsonable import payload, plain
from longshore.core.occurrences import local, next_times
from longshore.model.schedule import Fire, Schedule, ScheduleView


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule."""
    new, state = schedule.new, schedule.state
    timing = new.timing
    return {
        "id": str(new.id),
        "name": new.name,
        "app": new.app,
        "by": new.by,
        "specs": plain([_spec(one) for one in timing.specs]),
        "exclude": list(timing.exclude),
        "starts_at": plain(timing.starts_at),
        "ends_at": plain(timing.ends_at),
        "jitter_s": timing.jitter_s,
        "rules": plain(new.rules),
        **_submits(schedule),
        "paused": state.paused_at is not None,
        "paused_at": plain(state.paused_at),
        "paused_by": state.paused_by,
        "note": state.note,
        "failures": state.failures,
        "last_success_at": plain(state.last_success_at),
        "decided_to": plain(state.decided_to),
        "next_look_at": plain(schedule.look_at),
        "created_at": plain(schedule.created_at),
    }


def _spec(spec: Any) -> dict[str, Any]:
    return {"cron": spec.cron, "tz": spec.tz} if spec.cron else {"every_s": spec.every_s}


def _submits(schedule: Schedule) -> dict[str, Any]:
    new = schedule.new
    if new.job is not None:
        job = new.job
        args = None if job.options.raw else payload(job.args)
        return {"job": {"kind": job.kind, "args": args, "queue": job.queue}, "group": None}
    assert new.group is not None
    return {"job": None, "group": {"name": new.group.head.name, "jobs": new.group.head.jobs}}


def fire_json(fire: Fire) -> dict[str, Any]:
    """What became of a nominal time, or of many in a row."""
    return {
        "nominal_at": plain(fire.nominal_at),
        "last_at": plain(fire.last_at or fire.nominal_at),
        "count": fire.count,
        "fate": fire.fate.value,
        "why": fire.why,
        "decided_at": plain(fire.decided_at),
        "job": str(fire.subject) if fire.subject and not fire.is_group else None,
        "group": str(fire.subject) if fire.subject and fire.is_group else None,
        "pending": fire.pending,
        "outcome": plain(fire.outcome),
        "ended_at": plain(fire.ended_at),
    }


def view_json(view: ScheduleView) -> dict[str, Any]:
    """A schedule with its newest fires."""
    fires = [fire_json(fire) for fire in view.fires]
    return {**schedule_json(view.schedule), "why": view.text, "fires": fires}


def previewed(schedule: Schedule, now: datetime, most: int) -> Sequence[tuple[datetime, datetime]]:
    """The next nominal times: as instants, and as clocks show them in the schedule's zone."""
    timing = schedule.new.timing
    after = max(now, schedule.state.decided_to)
    return [(at, local(at, timing.specs[0].tz)) for at in next_times(timing, after, most)]


def preview_json(times: Sequence[tuple[datetime, datetime]]) -> list[dict[str, Any]]:
    """The next nominal times."""
    return [
        {"nominal_at": plain(at), "local": there.isoformat(timespec="seconds")}
        for at, there in times
    ]
