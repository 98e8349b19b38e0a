"""What was found of the rules that say when a job may start, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.markdown import first_line, shown, table
from bench.results import Results


def limits(results: Results) -> Iterator[str]:
    """Jobs with limits beside those without."""
    if results.limits is None:
        return
    yield from ["", "## Limits that never hold a job back"]
    rows = [
        (one.store, keys, f"{speed.one:,.0f}", f"{speed.other:,.0f}", shown(speed), shown(cpu))
        for one in results.limits
        for keys, speed, cpu in (
            ("one key on every job", one.one_key, one.one_key_cpu),
            (f"one of {one.keys:,} keys on each", one.many_keys, one.many_keys_cpu),
        )
    ]
    yield from table(["store", "", "jobs/s", "without limits", "ratio", "CPU of a job"], rows)


def locks(results: Results) -> Iterator[str]:
    """Jobs of which one runs at a time for each key, beside a peer's locks."""
    found = results.locks
    if found is None:
        return
    yield from ["", f"## One at a time for each of {found.keys} keys, PostgreSQL"]
    theirs = f"{found.ratio.other:,.0f}" if found.ratio else f"failed: {first_line(found.failure)}"
    row = (f"{found.jobs:,}", f"{median(found.ours):,.0f}", theirs, shown(found.ratio))
    head = ["jobs", "`Limit(1, key=…)`, jobs/s", f"locks of {found.name} {found.version}"]
    yield from table([*head, "ratio"], [row])


def fairness(results: Results) -> Iterator[str]:
    """What small tenants wait, and who gets how much."""
    if results.fairness is None:
        return
    yield from ["", "## Fairness: 99 small tenants beside one that floods"]
    rows = [
        (
            one.store,
            f"{one.flood:,}",
            one.alone,
            one.beside,
            f"{one.claim_ms[0]:.1f} / {one.claim_ms[1]:.1f}",
            f"{one.jain:.3f} ({one.keys:,} keys)",
            f"{one.timed_jain:.3f} ({one.timed_keys:,} keys)",
        )
        for one in results.fairness
    ]
    head = ["store", "flood", "p99 wait alone, jobs", "beside it", "claim, ms", "Jain index"]
    yield from table([*head, "of time, jobs of 1 and 5 s"], rows)


def schedules(results: Results) -> Iterator[str]:
    """How long it takes until all that is due is submitted."""
    if results.schedules is None:
        return
    yield from ["", "## Schedules that are due in the same second"]
    rows = [
        (
            one.store,
            one.dispatchers,
            f"{one.schedules:,}",
            f"{one.due:,}",
            f"{median(one.all_s):.2f} ({min(one.all_s):.2f}–{max(one.all_s):.2f})",
            one.wrong,
            f"{one.idle_ms:.1f}",
        )
        for one in results.schedules
    ]
    head = ["store", "dispatchers", "schedules", "due at once", "all submitted within, s"]
    yield from table([*head, "not once", "a look that finds none, ms"], rows)


def beat(results: Results) -> Iterator[str]:
    """What Celery beat does with as many that are due."""
    found = results.beat
    if found is None:
        return
    yield from ["", "## Celery beat, all due at a full minute"]
    sent = ", ".join(f"{number:,}" for number in found.sent)
    late = ", ".join(f"{seconds:.2f}" for seconds in found.late_s)
    failed = f"failed: {first_line(found.failure)}" if found.failure else ""
    row = (found.version, f"{found.due:,}", sent or failed, late)
    yield from table(["celery", "entries, all due", "sent, each round", "the last late, s"], [row])
