"""Submitting: what is accepted is there, once; what cannot be kept is refused, alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest
from msgspec import structs

from longshore.model.ends import Cancelled, End, Failed, Succeeded
from longshore.model.job import JobFilter, JobState, Options, Refused, RetryPolicy, Submitted
from longshore.ports import BatchResult
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, done, lane, some_jobs


async def test_accepted_job_is_shown_as_submitted(scene: Scene) -> None:
    """G1: what was accepted is there, whole."""
    options = Options(timeout_s=7.5, retry=RetryPolicy(attempts=4), labels=("a", "ü"))
    job = structs.replace(
        a_job(
            kind="fetch", queue="q", target="linux", priority=-3, args=b"\x00\xff", unique_key="u"
        ),
        options=options,
    )
    [number] = await scene.accepted(job)
    seen = await scene.job(job.id)
    assert (seen.id, seen.number, seen.state) == (job.id, number, JobState.READY)
    assert (seen.kind, seen.queue, seen.target) == ("fetch", "q", "linux")
    assert (seen.priority, seen.args, seen.unique_key) == (-3, b"\x00\xff", "u")
    assert seen.options == options
    assert (seen.round, seen.attempt, seen.failures, seen.crashes) == (1, 0, 0, 0)
    assert (seen.worker, seen.result, seen.error) == (None, None, None)
    assert [entry.state for entry in seen.history] == [JobState.READY]


async def test_accepted_job_is_seen_through_another_connection(
    scene: Scene, backend: Backend
) -> None:
    """G1: it is in the database, not in the process that accepted it."""
    job = a_job()
    await scene.accepted(job)
    async with backend.opened() as other:
        assert await other.job(job.id) is not None


async def test_numbers_grow_in_the_order_of_the_batch(scene: Scene) -> None:
    jobs = some_jobs(50)
    numbers = await scene.accepted(*jobs)
    assert numbers == sorted(set(numbers))
    assert (await scene.accepted(a_job()))[0] > numbers[-1]


async def test_an_equal_submit_that_was_written_differently_is_the_same_job(scene: Scene) -> None:
    """One program leaves a default out, another writes it; one sends ints, another floats."""
    plain = a_job()
    written = structs.replace(
        plain,
        queue="".join(("def", "ault")),
        options=Options(retry=RetryPolicy(backoff_s=float("1.0"))),
    )
    timed = a_job(timeout_s=30.0, delay_s=60.0)
    counted = structs.replace(
        timed, delay_s=60, options=structs.replace(timed.options, timeout_s=30)
    )
    first = await scene.submit(plain, timed)
    assert await scene.submit(written, counted) == first
    other = a_job()
    first = await scene.submit(structs.replace(written, id=other.id))
    assert await scene.submit(other) == first
    [refused] = await scene.submit(structs.replace(other, priority=1))
    assert isinstance(refused, Refused)
    assert refused.code == "conflict"


async def test_same_submit_again_is_the_same_job(scene: Scene) -> None:
    """G3: a repeated submit, after a lost answer, makes no second job."""
    jobs = [a_job(), a_job(delay_s=60), a_job(unique_key="u")]
    first = await scene.submit(*jobs)
    before = [await scene.job(job.id) for job in jobs]
    assert await scene.submit(*jobs) == first
    assert [await scene.job(job.id) for job in jobs] == before


async def test_same_submit_again_after_the_job_ended_changes_nothing(scene: Scene) -> None:
    job = a_job(unique_key="u")
    await scene.ended(Succeeded, job)
    [again] = await scene.submit(job)
    assert again == Submitted(job.id, (await scene.job(job.id)).number)
    assert await scene.state(job.id) is JobState.SUCCEEDED


OTHER: list[dict[str, object]] = [
    {"args": b"\x81"},
    {"kind": "other"},
    {"queue": "other"},
    {"priority": 1},
    {"delay_s": 5.0},
    {"unique_key": "other"},
    {"options": Options(labels=("other",))},
]


async def test_same_id_with_another_body_is_refused(scene: Scene) -> None:
    job = a_job()
    await scene.accepted(job)
    before = await scene.job(job.id)
    for change in OTHER:
        [answer] = await scene.submit(structs.replace(job, **change))
        assert isinstance(answer, Refused), change
        assert (answer.id, answer.code) == (job.id, "conflict")
        assert str(job.id) in answer.message
        assert await scene.job(job.id) == before
    assert [queue.name for queue in await scene.store.queues()] == [job.queue]


async def test_duplicates_in_one_batch_are_as_if_one_after_the_other(scene: Scene) -> None:
    job = a_job()
    answers = await scene.submit(job, job, structs.replace(job, args=b"other"), job)
    assert isinstance(answers[0], Submitted)
    assert answers[1] == answers[3] == answers[0]
    assert isinstance(answers[2], Refused)
    assert answers[2].code == "conflict"
    assert (await scene.job(job.id)).args == job.args


async def test_unique_key_leads_to_the_job_that_has_it(scene: Scene) -> None:
    first, second = a_job(unique_key="u"), a_job(unique_key="u")
    [number] = await scene.accepted(first)
    assert await scene.submit(second) == [Submitted(first.id, number, existing=True)]
    assert await scene.store.job(second.id) is None


@pytest.mark.parametrize("state", ["delayed", "running", "cancelling"])
async def test_unique_key_is_held_until_the_end(scene: Scene, state: str) -> None:
    job = a_job(unique_key="u", delay_s=60 if state == "delayed" else None)
    if state == "delayed":
        await scene.accepted(job)
    elif state == "running":
        await scene.running(job)
    else:
        await scene.being_cancelled(job)
    assert await scene.state(job.id) == state
    [answer] = await scene.submit(a_job(unique_key="u"))
    assert isinstance(answer, Submitted)
    assert (answer.id, answer.existing) == (job.id, True)


@pytest.mark.parametrize("outcome", [Succeeded, Failed, Cancelled])
async def test_unique_key_is_free_after_the_end(scene: Scene, outcome: type[End]) -> None:
    await scene.ended(outcome, a_job(unique_key="u"))
    second = a_job(unique_key="u")
    await scene.accepted(second)
    assert await scene.state(second.id) is JobState.READY


async def test_unique_key_freed_by_a_finish_of_the_same_batch(scene: Scene) -> None:
    attempt = await scene.running(a_job(unique_key="u"))
    second = a_job(unique_key="u")
    pumped = await scene.pump(finishes=[done(attempt)], submits=[second])
    [answer] = pumped.submitted
    assert isinstance(answer, Submitted)
    assert (answer.id, answer.existing) == (second.id, False)


async def test_unique_keys_inside_one_batch(scene: Scene) -> None:
    first, second, third = a_job(unique_key="u"), a_job(unique_key="u"), a_job(unique_key="v")
    answers = await scene.submit(first, second, third, first)
    assert [answer.id for answer in answers] == [first.id, first.id, third.id, first.id]
    existing = [isinstance(answer, Submitted) and answer.existing for answer in answers]
    assert existing == [False, True, False, False]


async def test_unique_key_is_per_kind(scene: Scene) -> None:
    await scene.accepted(a_job(kind="a", unique_key="u"), a_job(kind="b", unique_key="u"))


async def test_delayed_job_waits_for_its_time(scene: Scene, backend: Backend) -> None:
    soon, late = a_job(delay_s=30), a_job(run_at=datetime.now(UTC) + timedelta(hours=1))
    await scene.accepted(soon, late)
    assert await scene.states([soon.id, late.id]) == [JobState.DELAYED] * 2
    assert await scene.claim(await scene.attend(), most=2) == []
    delay = ((await scene.job(soon.id)).run_at or datetime.min) - (
        await scene.job(soon.id)
    ).created_at
    assert delay == timedelta(seconds=30)
    assert (await scene.job(late.id)).run_at == late.run_at


async def test_time_that_has_passed_is_no_delay(scene: Scene) -> None:
    past = a_job(run_at=datetime(2020, 1, 1, tzinfo=UTC))
    jobs = [past, a_job(delay_s=0), a_job(delay_s=-5)]
    await scene.accepted(*jobs)
    assert await scene.states([job.id for job in jobs]) == [JobState.READY] * 3


BAD: dict[str, dict[str, object]] = {
    "NUL in kind": {"kind": "a\0b"},
    "NUL in queue": {"queue": "a\0b"},
    "NUL in target": {"target": "\0"},
    "NUL in unique key": {"unique_key": "a\0"},
    "lone surrogate in kind": {"kind": "\ud800"},
    "lone surrogate in queue": {"queue": "q\udfff"},
    "lone surrogate in unique key": {"unique_key": "\udc80"},
    "lone surrogate in a label": {"options": Options(labels=("\ud800",))},
    "priority too high": {"priority": 32768},
    "priority too low": {"priority": -32769},
    "priority past 64 bits": {"priority": 2**70},
    "endless delay": {"delay_s": inf},
    "delay that is no number": {"delay_s": nan},
    "delay past every calendar": {"delay_s": 1e300},
    "endless timeout": {"options": Options(timeout_s=inf)},
    "timeout that is no number": {"options": Options(timeout_s=nan)},
    "timeout past every calendar": {"options": Options(timeout_s=1e300)},
    "attempts past 64 bits": {"options": Options(retry=RetryPolicy(attempts=2**70))},
    "time without a zone": {"run_at": datetime(2040, 1, 1)},
}


async def test_bad_item_is_refused_and_the_rest_is_committed(scene: Scene) -> None:
    slot = await scene.attend()
    for what, change in BAD.items():
        bad = structs.replace(a_job(), **change)
        good = some_jobs(3)
        answers = await scene.submit(good[0], bad, good[1], good[2])
        kinds = [type(answer) for answer in answers]
        assert kinds == [Submitted, Refused, Submitted, Submitted], what
        refused = answers[1]
        assert isinstance(refused, Refused)
        assert (refused.id, refused.code) == (bad.id, "invalid_input"), what
        assert refused.message
        assert await scene.store.job(bad.id) is None
        claimed = await scene.claim(slot, most=9)
        assert [attempt.id for attempt in claimed] == [job.id for job in good], what


async def test_several_bad_items_each_get_their_own_error(scene: Scene) -> None:
    jobs = [a_job(kind="\0"), a_job(), a_job(priority=10**6), a_job(), a_job(queue="\ud800")]
    answers = await scene.submit(*jobs)
    assert [isinstance(answer, Refused) for answer in answers] == [True, False, True, False, True]
    assert [answer.id for answer in answers] == [job.id for job in jobs]


async def test_extremes_that_fit_are_kept(scene: Scene) -> None:
    low, high = a_job(priority=-32768), a_job(priority=32767)
    odd = a_job(kind="\x01\x7f", unique_key="\u0000".replace("\0", "") + "𝔘 'x\"; --", args=b"")
    await scene.accepted(low, high, odd)
    assert (await scene.job(low.id)).priority == -32768
    assert (await scene.job(high.id)).priority == 32767
    seen = await scene.job(odd.id)
    assert (seen.kind, seen.unique_key, seen.args) == (odd.kind, odd.unique_key, b"")


async def test_freed_names_the_lanes_with_new_ready_jobs(scene: Scene) -> None:
    held = a_job(kind="u", unique_key="k")
    await scene.accepted(held)
    pumped = await scene.pump(
        submits=[
            a_job(kind="a"),
            a_job(kind="a"),
            a_job(kind="b", delay_s=60),
            a_job(kind="c", queue="q", target="t"),
            a_job(kind="u", unique_key="k"),
            a_job(kind="d\0"),
            held,
        ]
    )
    assert set(pumped.ready) == {lane(kind="a"), lane("q", "c", "t")}


async def test_empty_batch_does_nothing(scene: Scene) -> None:
    pumped = await scene.pump()
    assert pumped == BatchResult()


async def test_large_batch_is_one_commit(scene: Scene) -> None:
    jobs = [a_job(args=bytes(i % 251 for i in range(100))) for _ in range(1000)]
    numbers = await scene.accepted(*jobs)
    assert numbers == sorted(set(numbers))
    page = await scene.store.jobs(JobFilter(limit=2000))
    assert [job.id for job in reversed(page.jobs)] == [job.id for job in jobs]


async def counted(scene: Scene) -> dict[str, dict[str, int]]:
    return {queue.name: dict(queue.counts) for queue in await scene.store.queues()}


@pytest.mark.parametrize("alike", [40, 2], ids=["many alike", "few alike"])
async def test_what_is_known_hides_among_what_is_new(scene: Scene, alike: int) -> None:
    """Whatever a batch is made of, each of its jobs is answered and stored as it would be alone."""
    queues = ("a", "b", "c")
    old = [a_job(queue=queue) for queue in queues]
    numbers = await scene.accepted(*old)
    late = a_job(queue="a", delay_s=60)
    new = [a_job(queue=queue, priority=p) for p in range(alike) for queue in queues]
    new += [a_job(queue=queue) for queue in queues for _ in range(alike)]
    other = structs.replace(old[1], args=b"other")
    slot = await scene.attend()
    batch = [*new, late, old[0], other, old[2], new[0]]
    pumped = await scene.pump(submits=batch, slots=[slot, slot, *[None] * (len(batch) - 2)])
    answers = pumped.submitted
    assert [answer.id for answer in answers] == [job.id for job in batch]
    assert [type(answer) for answer in answers[-5:]] == [Submitted] * 2 + [Refused] + [
        Submitted
    ] * 2
    assert answers[-4] == Submitted(old[0].id, numbers[0])
    assert answers[-2] == Submitted(old[2].id, numbers[2])
    assert answers[-1] == answers[0]
    assert [one.id for one in pumped.started] == [new[0].id, new[1].id]
    assert [(await scene.job(job.id)).args for job in old] == [job.args for job in old]
    one_runs = {JobState.READY: 2 * alike, JobState.RUNNING: 1}
    assert await counted(scene) == {
        "a": {**one_runs, JobState.DELAYED: 1},
        "b": one_runs,
        "c": {JobState.READY: 2 * alike + 1},
    }
    for job in (new[-1], late):
        seen = await scene.job(job.id)
        assert (seen.queue, seen.priority, seen.args) == (job.queue, job.priority, job.args)


async def test_jobs_that_are_alike_keep_what_is_their_own(scene: Scene) -> None:
    jobs = [a_job(args=bytes([n])) for n in range(100)]
    slots = [await scene.attend(), await scene.attend()] * 50
    pumped = await scene.pump(submits=jobs, slots=slots)
    assert [(one.id, one.args, one.worker) for one in pumped.started] == [
        (job.id, job.args, slot.worker) for job, slot in zip(jobs, slots, strict=True)
    ]
    for attempt in pumped.started:
        seen = await scene.job(attempt.id)
        assert (seen.number, seen.args) == (attempt.number, attempt.args)
        assert (seen.worker, seen.history[-1].by) == (attempt.worker, str(attempt.worker))
