"""Schedules and their fires as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from longshore.cli.view.show import Table, View, time
from longshore.core.schedule_words import spec_texts
from longshore.model.schedule import Fire, Schedule, ScheduleView

_NUMBERS: Final = frozenset({"times", "failures"})


def schedules_view(schedules: Sequence[Schedule]) -> View:
    """Schedules by name."""
    head = ("name", "times", "submits", "next look", "paused", "app")
    rows = [
        (
            one.new.name,
            ", ".join(spec_texts(one)),
            submits(one),
            time(one.look_at),
            _paused(one),
            one.new.app,
        )
        for one in schedules
    ]
    table = Table(head, rows, frozenset(), optional=("app", "paused"))
    return View([table] if rows else [], "no schedules; `longshore schedules add` makes one")


def submits(schedule: Schedule) -> str:
    """What a schedule submits, in words."""
    new = schedule.new
    if new.job is not None:
        return f"job {new.job.kind}"
    return f"group {new.group.head.name}" if new.group is not None else ""


def _paused(schedule: Schedule) -> str:
    state = schedule.state
    if state.paused_at is None:
        return ""
    note = f" ({state.note})" if state.note else ""
    return f"since {time(state.paused_at)} by {state.paused_by}{note}"


def schedule_view(view: ScheduleView) -> View:
    """One schedule with its newest fires."""
    schedule = view.schedule
    new, rules = schedule.new, schedule.new.rules
    lines = [
        f"schedule  {new.name}",
        f"times     {', '.join(spec_texts(schedule))}",
        f"submits   {submits(schedule)}",
        f"rules     overlap {rules.overlap}, catchup {rules.catchup}",
        f"why       {view.text}",
    ]
    if new.timing.exclude:
        lines.insert(2, f"excludes  {', '.join(new.timing.exclude)}")
    if new.app:
        lines.insert(1, f"app       {new.app}")
    if schedule.state.last_success_at is not None:
        lines.append(f"success   {time(schedule.state.last_success_at)}")
    parts: list[Text | Table] = [Text("\n".join(lines))]
    if view.fires:
        parts.append(fires_table(view.fires))
    return View(parts)


def fires_table(fires: Sequence[Fire]) -> Table:
    """What became of nominal times, newest first."""
    head = ("nominal time", "times", "fate", "job or group", "outcome", "why")
    rows = [
        (
            time(fire.nominal_at) + (f" to {time(fire.last_at)}" if fire.last_at else ""),
            f"{fire.count:,}",
            fire.fate.value + (" (to be submitted)" if fire.pending else ""),
            str(fire.subject or ""),
            "" if fire.outcome is None else fire.outcome.value,
            fire.why,
        )
        for fire in fires
    ]
    return Table(head, rows, _NUMBERS, optional=("job or group",))


def preview_table(times: Sequence[tuple[datetime, datetime]]) -> Table:
    """The next nominal times, with their offsets."""
    rows = [(there.isoformat(" ", "seconds"), time(at)) for at, there in times]
    return Table(("local time", "nominal time"), rows, frozenset())
