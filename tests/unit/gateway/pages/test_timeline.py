"""A job's timeline: what it waited for, its attempts, what was held ahead, what goes on."""

from __future__ import annotations

from msgspec import structs
from tests.unit.core.test_waits import S, at, job

from longshore.core.waits import waited
from longshore.gateway.pages.timeline import rows_of, timeline
from longshore.model.job import Job
from longshore.model.waited import Kept, Pause, Stay


def seen(
    of: Job, now: float, *, stays: tuple[Stay, ...] = (), pauses: tuple[Pause, ...] = ()
) -> Job:
    return structs.replace(of, waited=waited(of, Kept(stays, pauses), at(now)))


def told(of: Job) -> list[tuple[str, list[tuple[float, float | None, str]]]]:
    """The rows, with seconds for times."""

    def second(moment: object) -> float | None:
        return None if moment is None else (moment - at(0)).total_seconds()  # type: ignore[operator]

    return [
        (row.name, [(second(one.since) or 0.0, second(one.until), one.colour) for one in row.bars])
        for row in rows_of(of)
    ]


def test_each_cause_of_waiting_and_each_attempt_has_a_row_of_its_own() -> None:
    tried = job(
        *((S.WAITING, 0), (S.READY, 2), (S.RUNNING, 5), (S.DELAYED, 6)),
        *((S.READY, 8), (S.RUNNING, 8), (S.SUCCEEDED, 11)),
        attempt=2,
        started_at=at(9),
        ended_at=at(11),
    )
    one = seen(tried, 99, pauses=(Pause(False, at(3), at(4)),))
    assert told(one) == [
        ("waited for jobs it depends on", [(0, 2, "waiting")]),
        ("waited for a free slot", [(2, 3, "ready"), (4, 5, "ready"), (8, 9, "ready")]),
        ("waited for a paused queue", [(3, 4, "paused")]),
        ("waited between attempts", [(6, 8, "delayed")]),
        ("attempt 1", [(5, 6, "failed")]),
        ("attempt 2", [(8, 9, "held"), (9, 11, "succeeded")]),
    ]


def test_what_runs_or_waits_now_has_no_end_and_grows_in_the_browser() -> None:
    runs = seen(job((S.READY, 0), (S.RUNNING, 1), started_at=at(1)), 5)
    assert told(runs)[-1] == ("attempt 1", [(1, None, "running")])
    markup = timeline(runs)
    assert markup.count("data-grows") == 1
    assert 'data-first="2030-01-01T00:00:00.000Z"' in markup
    behind = seen(job((S.READY, 0)), 9, stays=(Stay("tenant=a", at(2)),))
    assert told(behind) == [
        ("waited for a free slot", [(0, 2, "ready")]),
        ("waited for tenant=a (limit)", [(2, None, "limit")]),
    ]


def test_what_a_worker_holds_ahead_has_not_begun() -> None:
    held = seen(job((S.READY, 0), (S.RUNNING, 1), held_behind=2), 5)
    assert told(held)[-1] == ("attempt 1", [(1, None, "held")])


def test_an_attempt_that_is_cancelled_goes_on_until_it_has_stopped() -> None:
    moves = ((S.READY, 0), (S.RUNNING, 1), (S.CANCELLING, 3))
    stops = job(*moves, started_at=at(1))
    assert told(stops)[-1] == ("attempt 1", [(1, None, "cancelling")])
    over = job(*moves, (S.CANCELLED, 4), started_at=at(1), ended_at=at(4))
    assert told(over)[-1] == ("attempt 1", [(1, 4, "cancelled")])


def test_a_job_that_came_just_now_is_drawn_too() -> None:
    assert "<rect" in timeline(seen(job((S.READY, 0)), 0))
