"""What is to say of a schedule, in words: what it waits for, and why it does not fire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from longshore.core.occurrences import local, next_times
from longshore.model.schedule import Examined, Fate, Fire, Schedule, Timing


def schedule_text(examined: Examined, newest: Sequence[Fire]) -> str:
    """Why a schedule is where it is."""
    parts = [_next(examined), *_runs(examined.fires)]
    if newest and newest[0].why and newest[0].fate in (Fate.SKIPPED, Fate.EXPIRED):
        parts.append(f"the last time was {newest[0].fate.value}: {newest[0].why}")
    return "; ".join(parts)


def _next(examined: Examined) -> str:
    schedule = examined.schedule
    state = schedule.state
    if state.paused_at is not None:
        by = f" by {state.paused_by}" if state.paused_by else ""
        note = f": {state.note}" if state.note else ""
        return f"paused since {_utc(state.paused_at)}{by}{note}"
    after = max(state.decided_to, examined.now)
    found = next_times(schedule.new.timing, after, 1)
    if schedule.look_at is not None and schedule.look_at <= examined.now:
        return "due: a dispatcher is about to look at it"
    if not found:
        return "it has no more times"
    return f"next at {local_text(found[0], schedule.new.timing)}"


def _runs(fires: Sequence[Fire]) -> list[str]:
    running = [fire for fire in fires if fire.subject and fire.outcome is None]
    queued = [fire for fire in fires if fire.fate is Fate.QUEUED]
    parts = []
    if running:
        what = "group" if running[0].is_group else "job"
        first = min(running, key=lambda fire: fire.nominal_at)
        more = f" (and {len(running) - 1:,} more)" if len(running) > 1 else ""
        parts.append(
            f"the run of {_utc(first.nominal_at)} has not ended: {what} {first.subject}{more}"
        )
    if queued:
        parts.append(f"{len(queued):,} {'time waits' if len(queued) == 1 else 'times wait'} for it")
    return parts


def spec_texts(schedule: Schedule) -> list[str]:
    """The specs of a schedule, each in words."""
    return [
        f"{spec.cron} ({spec.tz})" if spec.cron else f"every {spec.every_s:g} s"
        for spec in schedule.new.timing.specs
    ]


def local_text(at: datetime, timing: Timing) -> str:
    """A time as clocks show it in the zone of the first spec, with its offset."""
    return local(at, timing.specs[0].tz).isoformat(timespec="seconds")


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
