"""Changes: what people can see changes a number, and what is only kept alive does not."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from longshore.dispatcher.noticed_store import CHANGES, DUTIES, UNSEEN, did_something
from longshore.model.batch import BatchResult
from longshore.model.limits import LimitsOpened
from longshore.model.retention import Pruned
from longshore.model.upkeep import Harvested, Promoted, Settled, Told
from longshore.ports import Store
from longshore.testing.builders import a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m

from .stage import Client, Stage
from .test_stories import tell


def test_of_every_verb_it_is_said_whether_it_changes_what_people_see() -> None:
    verbs = {name for name in dir(Store) if not name.startswith("_")}
    tables = (UNSEEN, DUTIES, CHANGES)
    assert set().union(*tables) == verbs
    assert sum(map(len, tables)) == len(verbs)


@pytest.mark.parametrize(
    "answer",
    [
        BatchResult(limits_open_s=2.0, contested=frozenset({1})),
        Promoted(0, frozenset(), 7.5),
        LimitsOpened(next_s=1.0, after="k"),
        Pruned({}, 900, done=True),
        Settled(),
        Told(),
        Harvested(lost=False),
        [],
        (),
        [False, False],
        0,
        None,
    ],
)
def test_a_duty_that_found_nothing_to_do_changes_nothing(answer: object) -> None:
    assert not did_something(answer)


@pytest.mark.parametrize(
    "answer",
    [
        Promoted(2, frozenset({1}), None),
        LimitsOpened({1: 1}),
        Pruned({}, 900, done=True, groups=1),
        Settled(ready={1: 1}),
        Harvested(lost=True),
        [True],
        3,
    ],
)
def test_a_duty_that_did_something_changes_what_people_see(answer: object) -> None:
    assert did_something(answer)


async def mark(
    client: Client, seen: m.ChangeMark | None = None, wait_s: float = 0.0
) -> m.ChangeMark:
    answer = await client.ask(m.AwaitChange(7, seen, wait_s))
    assert isinstance(answer, m.ChangeMark), answer
    return answer


async def quiet(stage: Stage, client: Client) -> m.ChangeMark:
    """The mark once nothing has changed for a while."""
    seen = await mark(client)
    while (later := await mark(client, seen, 20.0)) != seen:
        seen = later
    return seen


def test_nothing_changes_while_nothing_happens_for_minutes() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        await stage.worker()
        client = stage.client()
        seen = await quiet(stage, client)
        assert await mark(client, seen, 600.0) == seen

    tell(story)


def test_who_waits_for_a_change_hears_of_a_commit_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        seen = await quiet(stage, client)
        waiting = asyncio.create_task(mark(stage.client(), seen, 600.0))
        await client.submit(a_job())
        assert await stage.until(waiting.done) < 0.2
        await stage.until(lambda: bool(worker.jobs.running))
        running = await quiet(stage, client)
        waiting = asyncio.create_task(mark(stage.client(), running, 600.0))
        worker.jobs.succeed()
        assert await stage.until(waiting.done) < 0.2

    tell(story)


def test_what_an_audited_request_changes_is_noticed_too() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        seen = await quiet(stage, client)
        await client.ask(m.Pause(3, new_id(), "default", True))
        assert (await mark(client, seen)).number > seen.number

    tell(story)


def test_a_mark_of_another_process_is_answered_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        seen = await quiet(stage, client)
        other = structs.replace(seen, dispatcher=new_id())
        asked = asyncio.create_task(mark(client, other, 600.0))
        assert await stage.until(asked.done) < 0.2
        assert asked.result() == seen

    tell(story)


def test_a_commit_whose_answer_got_lost_is_a_change() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client = stage.client()
        seen = await quiet(stage, client)
        stage.store.plan = scripted(("set_paused", Fault.AFTER))
        await client.ask(m.Pause(3, new_id(), "default", True))
        assert (await mark(client, seen)).number > seen.number

    tell(story)
