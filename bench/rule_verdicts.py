"""The level of the rules that say when a job may start: limits, fairness."""

from __future__ import annotations

from collections.abc import Iterator

from bench.level import STORE_NAMES, Verdict, at_least, spread
from bench.results import Results

ONE_KEY = 0.85
MANY_KEYS = 0.75
FLOOD_WAIT = 2.0
JAIN = 0.95
SUBMITTED_S = 2.0


def limits(results: Results) -> Iterator[Verdict]:
    """The throughput of jobs with limits, of those without."""
    for one in results.limits or ():
        store = STORE_NAMES[one.store]
        yield at_least(f"limits: one key on every job, {store}", ONE_KEY, one.one_key)
        yield at_least(f"limits: {one.keys:,} keys, {store}", MANY_KEYS, one.many_keys)


def locks(results: Results) -> Iterator[Verdict]:
    """Ahead of a peer's locks."""
    found = results.locks
    if found is not None and found.ratio is not None:
        name = f"limits: {found.jobs:,} jobs, one at a time for each of {found.keys} keys"
        shown = f"{found.ratio.median:.2f} times{spread(found.ratio)}"
        met = found.ratio.median > 1
        yield Verdict(f"{name}, against the locks of {found.name}", "ahead", "", shown, met)


def fairness(results: Results) -> Iterator[Verdict]:
    """Small tenants hardly wait longer beside a flood, and all keys get as much."""
    for one in results.fairness or ():
        store, most = STORE_NAMES[one.store], FLOOD_WAIT * one.alone
        yield Verdict(
            f"fairness: p99 wait of 99 tenants beside one with {one.flood:,} jobs, {store}",
            f"at most {FLOOD_WAIT:g} times",
            "",
            f"{one.beside / one.alone:.2f} times, {one.beside:,} jobs before, {one.alone:,} alone",
            one.beside <= most,
        )
        for name, index in (
            (f"{one.keys:,} keys", one.jain),
            (f"{one.timed_keys:,} keys, of the time, jobs of different length", one.timed_jain),
        ):
            name = f"fairness: Jain index over {name}, {store}"
            yield Verdict(name, f"{JAIN:g}", "", f"{index:.3f}", index >= JAIN)


def schedules(results: Results) -> Iterator[Verdict]:
    """All that is due in the same second is submitted soon, and each time once."""
    for one in results.schedules or ():
        many = "1 dispatcher" if one.dispatchers == 1 else f"{one.dispatchers} dispatchers"
        name = f"schedules: {one.due:,} of {one.schedules:,} due in the same second"
        where = f"{STORE_NAMES[one.store]}, {many}"
        longest = max(one.all_s)
        shown = f"{longest:.2f} s"
        yield Verdict(
            f"{name}, all submitted, {where}",
            f"within {SUBMITTED_S:g} s",
            "",
            shown,
            longest <= SUBMITTED_S,
        )
        yield Verdict(f"{name}, not once, {where}", "0", "", f"{one.wrong:,}", one.wrong == 0)


def beat(results: Results) -> Iterator[Verdict]:
    """What Celery beat does; nothing is required of it."""
    found = results.beat
    if found is not None and found.sent:
        shown = f"{min(found.sent):,} sent, the last {max(found.late_s):.2f} s late"
        name = f"schedules: {found.due:,} entries of Celery beat due at once, no other entries"
        yield Verdict(name, "", "", shown, True)
