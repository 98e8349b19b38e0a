"""What a schedule may be: names, numbers, times."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Final

from longshore.core.limits import MAX_DURATION_S, MAX_NAME_CHARS, check_length, check_name
from longshore.core.occurrences import check_cron, check_exclude, zone_of
from longshore.errors import InvalidInput
from longshore.model.schedule import NewSchedule, Rules, Spec, Timing

MAX_SPECS: Final = 20
MAX_EXCLUDED: Final = 100
MAX_SPEC_CHARS: Final = 500
MAX_NOTE_CHARS: Final = 500
MAX_CAUGHT_UP: Final = 1000
MAX_BACKFILLED: Final = 1000
MAX_SYNCED: Final = 1000
LEAST_EVERY_S: Final = 1.0


def check_schedule(new: NewSchedule) -> None:
    """Raises `InvalidInput` unless a schedule may be like this. Its jobs are not checked here."""
    check_name("the name of a schedule", new.name)
    check_length("the name of an app", new.app, MAX_NAME_CHARS)
    if new.by:
        raise InvalidInput("by is set; only a dispatcher says who makes a schedule")
    try:
        check_timing(new.timing)
        _check_rules(new.rules)
        _check_submits(new)
    except InvalidInput as error:
        raise InvalidInput(f"schedule '{new.name}': {error}") from None


def _check_submits(new: NewSchedule) -> None:
    if (new.job is None) == (new.group is None):
        raise InvalidInput("it submits either a job or a group; give one of them")
    if new.job is not None and (new.job.run_at is not None or new.job.delay_s is not None):
        raise InvalidInput("its job has a time of its own (run_at, delay_s); leave that out")
    if new.group is not None:
        part = new.group
        if part.first or len(part.nodes) != part.head.jobs:
            raise InvalidInput("its group is too large: all of its jobs go into one request")


def check_timing(timing: Timing) -> None:
    """Raises `InvalidInput` unless these are times that a schedule may have."""
    if not 1 <= len(timing.specs) <= MAX_SPECS:
        raise InvalidInput(f"it has {len(timing.specs)} specs; give 1 to {MAX_SPECS}")
    for spec in timing.specs:
        _check_spec(spec)
    if len(timing.exclude) > MAX_EXCLUDED:
        raise InvalidInput(f"it excludes more than the {MAX_EXCLUDED} there may be")
    for text in timing.exclude:
        check_length("what it excludes", text, MAX_SPEC_CHARS)
    check_exclude(timing.exclude)
    _check_number("jitter_s", timing.jitter_s, 0, 86_400)
    for name in ("starts_at", "ends_at"):
        check_zoned(name, getattr(timing, name))


def check_zoned(name: str, at: datetime | None) -> None:
    """Raises `InvalidInput` if a time has no zone."""
    if at is not None and at.utcoffset() is None:
        raise InvalidInput(f"{name} {at.isoformat()} has no time zone; give one, like Z or +01:00")


def _check_spec(spec: Spec) -> None:
    check_length("a cron expression", spec.cron, MAX_SPEC_CHARS)
    if bool(spec.cron) == bool(spec.every_s):
        raise InvalidInput("a spec has either cron or every; give one of them")
    zone_of(spec.tz)
    if spec.cron:
        check_cron(spec.cron)
    else:
        _check_number("every", spec.every_s, LEAST_EVERY_S, MAX_DURATION_S)


def _check_rules(rules: Rules) -> None:
    _check_number("window_s", rules.window_s, 0, MAX_DURATION_S)
    _check_number("grace_s", rules.grace_s, 1, MAX_DURATION_S)
    _check_number("count", rules.count, 1, MAX_CAUGHT_UP)
    _check_number("pause_after", rules.pause_after, 0, 1_000_000)


def _check_number(name: str, number: float, least: float, most: float) -> None:
    if not (isfinite(number) and least <= number <= most):
        raise InvalidInput(f"{name} is {number:g}; it must be from {least:g} to {most:g}")
