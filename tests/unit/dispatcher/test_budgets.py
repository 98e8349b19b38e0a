"""A dispatcher refuses requests that ask for too much, and no others."""

from __future__ import annotations

import asyncio

import pytest

from longshore.core.limits import MAX_DRAINED, MAX_LISTED, MAX_REQUEST_JOBS
from longshore.dispatcher.budgets import LEAST_WAIT
from longshore.errors import InvalidInput, TooLarge, Unavailable
from longshore.model.job import JobFilter, JobState
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, healthy
from longshore.wire import messages as m
from longshore.wire.codec import encode

from .stage import Client, Stage
from .test_rare_orders import pass_time
from .test_stories import tell

TOO_MANY = MAX_REQUEST_JOBS + 1
IDS = (new_id(),) * TOO_MANY
STATES = (*JobState, JobState.READY)
"""One more than there are."""
LONG: list[tuple[m.Request, str, str]] = [
    (m.Submit(1, (a_job(),) * TOO_MANY), TooLarge.code, "SUBMIT names 1,001 jobs"),
    (
        m.Wait(1, IDS, 0.0),
        TooLarge.code,
        "WAIT names 1,001 jobs; a request may name 1,000: send several",
    ),
    (m.Cancel(1, new_id(), IDS), TooLarge.code, "CANCEL names 1,001 jobs"),
    (m.Retry(1, new_id(), IDS), TooLarge.code, "RETRY names 1,001 jobs"),
    (m.Drain(1, new_id(), ("w",) * (MAX_DRAINED + 1)), TooLarge.code, "DRAIN names 101 workers"),
    (
        m.Drain(1, new_id(), ("w" * 1000,)),
        InvalidInput.code,
        "a worker's name has 1,000 characters",
    ),
    (m.Prune(1, new_id(), STATES), TooLarge.code, f"PRUNE names {len(STATES)} states"),
    (m.RetryGroup(1, new_id(), 1, ("k",) * 1001), TooLarge.code, "names 1,001 jobs"),
    (m.RetryGroup(1, new_id(), 1, ("k" * 202,)), InvalidInput.code, "a key has 202 characters"),
    (m.RerunGroup(1, new_id(), 1, ("k",) * 1001), TooLarge.code, "RERUNGROUP names 1,001 jobs"),
    (m.CancelGroup(1, new_id(), 1, "k" * 202), InvalidInput.code, "prefix has 202 characters"),
    (m.OpenGate(1, new_id(), 1, "k" * 201), InvalidInput.code, "the key has 201 characters"),
    (m.ShowKind(1, "k" * 201), InvalidInput.code, "SHOWKIND: the kind has 201 characters"),
    (m.Pause(1, new_id(), "q" * 100_000, True), InvalidInput.code, "queue has 100,000 characters"),
    (
        m.Pause(1, new_id(), "a\nb", True),
        InvalidInput.code,
        "has a character that names may not have",
    ),
    (m.ListJobs(1, JobFilter(limit=MAX_LISTED + 1)), TooLarge.code, "names 10,001 jobs"),
    (m.ListJobs(1, JobFilter(labels=("x",) * 21)), TooLarge.code, "names 21 labels"),
    (m.ListJobs(1, JobFilter(labels=("x" * 101,))), InvalidInput.code, "a label has 101"),
    (m.ListJobs(1, JobFilter(states=STATES)), TooLarge.code, f"names {len(STATES)} states"),
    (m.ListJobs(1, JobFilter(queue="q" * 201)), InvalidInput.code, "a name has 201 characters"),
]


@pytest.mark.parametrize(("request_", "code", "words"), LONG)
def test_a_list_or_a_text_that_is_too_long_is_refused(
    request_: m.Request, code: str, words: str
) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        asked: list[str] = []
        stage.store.plan = lambda verb: asked.append(verb)
        answer = await stage.client().ask(request_)
        assert isinstance(answer, m.Err), answer
        assert answer.code == code
        assert words in answer.message
        verbs = {"pump", "ended", "cancel", "retry", "prune", "jobs", "set_paused", "retry_group"}
        assert not verbs & set(asked)

    tell(story)


def wait(client: Client, rid: int) -> None:
    client._link.send(b"", encode(m.Wait(rid, (new_id(),), 1000.0)))


def test_waits_keep_nobody_from_submitting_nor_from_waiting() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_waited_jobs=20 * LEAST_WAIT, max_peer_waited_jobs=900)
        greedy, other = stage.client(), stage.client()
        for rid in range(10):
            wait(greedy, rid)
        refused = await greedy._answers.get()
        assert (
            b"this client has too many requests under way (max_peer_waited_jobs: 900)"
            in (refused[2])
        )
        job = a_job()
        await greedy.submit(job)
        await other.submit(a_job())
        assert await other.wait(job, wait_s=0.0) == []

    tell(story)


def test_waits_of_all_clients_are_bounded_and_free_again_when_they_end() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_waited_jobs=2 * LEAST_WAIT, max_wait_s=5.0)
        one, two = stage.client(), stage.client()
        for rid in (1, 2):
            wait(one, rid)
        answer = await two.ask(m.Wait(3, (new_id(),), 1.0))
        assert isinstance(answer, m.Err)
        assert answer.code == Unavailable.code
        for _ in (1, 2):
            await one._answers.get()
        assert await two.ask(m.Wait(4, (new_id(),), 1.0)) == ()

    tell(story)


def test_one_client_has_a_bound_of_requests_and_others_have_room() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(max_requests=5, max_peer_requests=3)
        greedy, other = stage.client(), stage.client()
        for rid in range(10):
            greedy._link.send(b"", encode(m.ListQueues(rid)))
        other._link.send(b"", encode(m.Hello(1)))
        answers = [(await greedy._answers.get())[1] for _ in range(10)]
        assert answers.count(b"ERR") == 7
        assert (await other._answers.get())[1] == b"OK"
        await asyncio.sleep(0)
        assert await greedy.ask(m.ListQueues(11)) == ()

    tell(story)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max_queued_submits": 3}, "3 submits are waiting for the store (max_queued_submits)"),
        ({"max_queued_bytes": 1300}, "(max_queued_bytes: 1,300); try again"),
    ],
)
def test_while_the_store_is_away_submits_are_taken_up_to_a_bound(
    limit: dict[str, float], words: str
) -> None:
    """In number and in bytes: a dispatcher that waits for its store must not grow for ever."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1", **limit)
        stage.store.plan = lambda verb: Fault.BEFORE if verb == "pump" else None
        jobs = [a_job(args=bytes(600)) for _ in range(4)]
        first, second = stage.client(), stage.client()
        waiting = asyncio.create_task(first.submit(*jobs[:2]))
        await pass_time(stage, 1.0)
        refused = await second.ask(m.Submit(5, tuple(jobs[2:])))
        assert isinstance(refused, m.Err)
        assert refused.code == Unavailable.code
        assert words in refused.message
        stage.store.plan = healthy
        assert [answer.code for answer in await waiting] == ["", ""]
        assert [answer.code for answer in await second.submit(*jobs[2:])] == ["", ""]

    tell(story)
