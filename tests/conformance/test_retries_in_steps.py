"""The retry of a large group on PostgreSQL: in steps, whatever dies, ends or is asked in between.

Most of these groups are small, and the steps are of one job each. `also in steps` run the tests of
all retries (`test_growth_retries.py`) and the models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec import structs

from longshore.errors import StoreUnavailable
from longshore.model.ends import End, Failed, Retried, Succeeded
from longshore.model.group import (
    AddedNode,
    Condition,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    RetryPlan,
)
from longshore.model.job import JobState
from longshore.store.postgres import group_reopening
from longshore.store.postgres.connections import ConnectionPool, Transaction, Work
from longshore.store.postgres.group_retry import GroupRetry
from longshore.store.postgres.states import CODES, GROUP_CODES
from longshore.store.postgres.store import PostgresStore
from longshore.testing.backends import PostgresBackend
from longshore.testing.builders import GroupScene, Scene, a_group, a_job, a_node, done, new_id

from .test_examined_groups import troubles
from .test_groups import run_to_the_end
from .test_growth import ONE
from .test_prune import AT_ONCE
from .test_prune_groups import prune_groups

pytestmark = pytest.mark.parametrize("backend", ["in_steps"], indirect=True)

S = JobState
G = GroupState

SHAPE = {"a": "", "x": "", "b": "a", "c": "b x", "d": "c", "e": "a x"}
"""If `a` fails while `x` runs, all but `x` can be retried."""


BEFORE = 2
"""After so many transactions the decision is kept: the first one asks whether it is a repeat."""


class ProcessDied(BaseException):
    """What stops a retry between two of its transactions."""


class DyingPool:
    """A pool of connections whose process dies after so many transactions."""

    def __init__(self, pool: ConnectionPool, left: int) -> None:
        self._pool = pool
        self.left = left

    async def run(self, work: Work[Any]) -> Any:
        """Runs a transaction, if the process still lives."""
        if not self.left:
            raise ProcessDied
        self.left -= 1
        return await self._pool.run(work)


@pytest.fixture
async def dying(backend: PostgresBackend, scene: Scene) -> AsyncIterator[Scene]:
    """Another dispatcher on the same database; `retry` makes it die."""
    async with backend.opened() as store:
        yield Scene(store)


async def retry(
    dying: Scene, group: GroupScene, transactions: int, request: UUID, keys: tuple[str, ...] = ()
) -> RetryPlan | None:
    """A dispatcher retries a group and dies after so many transactions; None if it died."""
    store = cast("PostgresStore", dying.store)
    pool = store._keeping
    store._keeping = cast("ConnectionPool", DyingPool(pool, transactions))
    try:
        return await store.retry_group(group.id, "me", request, keys=keys)
    except ProcessDied:
        return None
    finally:
        store._keeping = pool


async def failed(scene: Scene) -> GroupScene:
    """A group in which `a` failed while `x` runs."""
    group = await scene.submit_group(a_group(SHAPE, {"e": Condition.ENDED}))
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    assert await group.state("d") is S.DEPENDENCY_FAILED
    return group


async def test_what_a_dead_dispatcher_left_of_a_retry_is_completed(
    scene: Scene, dying: Scene
) -> None:
    """Before its first transaction nothing was asked; after that all of it is done, once."""
    for transactions in range(100):
        group, request = await failed(scene), new_id()
        plan = await retry(dying, group, transactions, request)
        await group.settle()
        if transactions < BEFORE:
            assert await group.state("a") is S.FAILED
            continue
        again = await scene.store.retry_group(group.id, "me", request)
        assert again is not None
        assert set(again.reopened) == {"a", "b", "c", "d"}
        assert await scene.store.retry_group(group.id, "me", request, dry_run=True) == again
        assert await troubles(scene, group) == []
        assert await group.claim() == {"a"}
        await group.end("a", "x")
        assert await run_to_the_end(group) == [{"b", "e"}, {"c"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED
        assert (await scene.job(group.jobs["a"])).round == 2
        if plan is not None:
            assert plan == again
            assert transactions > 8, "it took steps"
            return
    raise AssertionError("the retry never came to its end")


Between = Callable[[Scene, GroupScene], Awaitable[object]]


async def at_each_step(scene: Scene, dying: Scene, between: Between) -> AsyncIterator[GroupScene]:
    """Groups whose retry was stopped at each of its steps, where something else came in between."""
    for transactions in range(BEFORE, 100):
        group = await failed(scene)
        plan = await retry(dying, group, transactions, new_id())
        await between(scene, group)
        await group.settle()
        await group.look()
        assert await troubles(scene, group) == []
        yield group
        if plan is not None:
            return


async def test_a_job_of_the_group_succeeds_between_any_two_steps(
    scene: Scene, dying: Scene
) -> None:
    async for group in at_each_step(scene, dying, lambda _, group: group.end("x")):
        assert await run_to_the_end(group) == [{"a"}, {"b", "e"}, {"c"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_a_job_of_the_group_fails_between_any_two_steps(scene: Scene, dying: Scene) -> None:
    """What was opened and depends on it cannot run again; the rest does."""
    async for group in at_each_step(scene, dying, lambda _, group: group.end("x", how=Failed)):
        assert await run_to_the_end(group) == [{"a"}, {"b", "e"}]
        assert await group.group_state() is G.FAILED
        error = (await scene.job(group.jobs["d"])).error
        assert error is not None
        assert error.message == "'x' failed: ValueError: it did not work"


async def test_a_job_of_the_group_adds_others_between_any_two_steps(
    scene: Scene, dying: Scene
) -> None:
    async for group in at_each_step(scene, dying, lambda _, group: group.end("x", adds=ONE)):
        waves = await run_to_the_end(group)
        assert waves == [{"a", "x/x"}, {"b", "e"}, {"c"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


async def test_a_cancel_between_any_two_steps_ends_the_group(scene: Scene, dying: Scene) -> None:
    async def cancel(scene: Scene, group: GroupScene) -> None:
        await scene.store.cancel_group(group.id, "me")

    async for group in at_each_step(scene, dying, cancel):
        await group.end("x")
        await group.settle()
        assert await group.group_state() is G.CANCELLED
        states = await group.states()
        assert {states[key] for key in "abcd"} == {S.CANCELLED}


async def test_a_pause_between_any_two_steps_holds_the_group(scene: Scene, dying: Scene) -> None:
    async def pause(scene: Scene, group: GroupScene) -> None:
        await scene.store.pause_group(group.id, True)

    async for group in at_each_step(scene, dying, pause):
        await group.end("x")
        await group.settle()
        assert await group.claim() == set()
        await scene.store.pause_group(group.id, False)
        await group.settle()
        assert await run_to_the_end(group) == [{"a"}, {"b", "e"}, {"c"}, {"d"}]


async def test_a_job_that_waits_is_cancelled_between_any_two_steps(
    scene: Scene, dying: Scene
) -> None:
    """Opened or not, its dependents hear of it once."""

    async def cancel(scene: Scene, group: GroupScene) -> None:
        await scene.store.cancel([group.jobs["b"]])
        await scene.store.cancel([group.jobs["e"]])

    async for group in at_each_step(scene, dying, cancel):
        cancelled = await group.state("b") is S.CANCELLED
        await group.end("x")
        waves = await run_to_the_end(group)
        assert waves == ([{"a"}] if cancelled else [{"a"}, {"b"}, {"c"}, {"d"}])
        assert (await group.group_state()) in (G.FAILED, G.CANCELLED)
        assert await troubles(scene, group) == []


async def test_an_end_that_was_not_told_yet_is_not_told_after_a_retry(
    scene: Scene, dying: Scene
) -> None:
    """Its job runs again, and will be told of then."""
    for transactions in range(BEFORE, 100):
        group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "b", "x": ""}))
        assert await group.claim(1) == {"a"}
        await scene.store.cancel([group.jobs["x"]])
        await group.end("a", how=Retried)
        await scene.store.cancel([group.jobs["a"]])
        plan = await retry(dying, group, transactions, new_id())
        await group.settle()
        assert await troubles(scene, group) == []
        assert await run_to_the_end(group) == [{"a", "x"}, {"b"}, {"c"}]
        if plan is not None:
            assert set(plan.reopened) == {"a", "x"}
            return


async def test_another_retry_completes_the_first(scene: Scene, dying: Scene) -> None:
    group = await failed(scene)
    assert await retry(dying, group, BEFORE + 2, new_id()) is None
    second = await scene.store.retry_group(group.id, "me", new_id())
    assert second is not None
    assert second.refused == "there is nothing to retry: no job ended without success"
    await group.settle()
    assert await group.claim() == {"a"}


async def test_nothing_is_added_to_a_group_that_is_being_retried(
    scene: Scene, dying: Scene
) -> None:
    """It could depend on a job that is about to be opened."""
    group, request = await failed(scene), new_id()
    nodes = [AddedNode("n", structs.replace(a_job(), id=UUID(int=0)), ("a",))]
    assert await retry(dying, group, BEFORE, new_id()) is None
    with pytest.raises(StoreUnavailable, match="is being retried"):
        await scene.store.add_to_group(group.id, request, nodes)
    await group.settle()
    assert isinstance(await scene.store.add_to_group(group.id, request, nodes), GroupSubmitted)
    await group.look()
    await group.end("x")
    assert await run_to_the_end(group) == [{"a"}, {"b", "e", "n"}, {"c"}, {"d"}]


async def test_a_group_that_is_being_retried_is_not_pruned_or_closed(
    scene: Scene, dying: Scene
) -> None:
    group = await failed(scene)
    await group.end("x")
    await run_to_the_end(group)
    assert await group.group_state() is G.FAILED
    assert await retry(dying, group, BEFORE, new_id()) is None
    assert await group.group_state() is G.RUNNING
    await prune_groups(scene.store, AT_ONCE)
    await group.settle()
    assert await run_to_the_end(group) == [{"a"}, {"b"}, {"c"}, {"d"}]


async def test_a_unique_key_that_is_taken_meanwhile_leaves_its_job_as_it_ended(
    scene: Scene, dying: Scene
) -> None:
    jobs = {"b": a_job(unique_key="one")}
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "b"}, jobs=jobs))
    await group.claim()
    await group.end("a", how=Failed)
    await group.settle()
    assert await retry(dying, group, BEFORE, new_id()) is None
    await scene.accepted(a_job(unique_key="one", kind=jobs["b"].kind, queue="elsewhere"))
    await group.settle()
    assert await group.claim() == {"a"}
    await group.end("a")
    await group.settle()
    states = await group.states()
    wanted = {"a": S.SUCCEEDED, "b": S.DEPENDENCY_FAILED, "c": S.DEPENDENCY_FAILED}
    assert states == wanted
    assert await group.group_state() is G.FAILED


async def test_a_job_that_starts_after_the_look_is_waited_for(scene: Scene, dying: Scene) -> None:
    """The retry of what it depends on is refused, as if it had run before."""
    group = await scene.submit_group(a_group({"a": "", "b": "a", "c": "b"}))
    await group.claim()
    await group.end("a")
    store = cast("PostgresStore", dying.store)
    pool = store._keeping

    class Looked:
        runs = 0

        async def run(self, work: Work[Any]) -> Any:
            self.runs += 1
            if self.runs == BEFORE:
                assert await group.claim() == {"b"}
            return await pool.run(work)

    store._keeping = cast("ConnectionPool", Looked())
    plan = await store.retry_group(group.id, "me", new_id(), keys=["a"])
    store._keeping = pool
    assert plan is not None
    assert plan.refused == "'b' still runs; wait until it has ended, or cancel it"
    await group.end("b")
    assert await run_to_the_end(group) == [{"c"}]


async def test_ends_that_are_being_delivered_are_counted_once(scene: Scene, dying: Scene) -> None:
    """A retry, the ends of other jobs and two that settle, at once."""
    for _ in range(8):
        group = await failed(scene)
        await asyncio.gather(
            dying.store.retry_group(group.id, "me", new_id()),
            group.end("x"),
            scene.settle(),
            dying.settle(),
        )
        await group.settle()
        assert await troubles(scene, group) == []
        assert await run_to_the_end(group) == [{"a"}, {"b", "e"}, {"c"}, {"d"}]
        assert await group.group_state() is G.SUCCEEDED


# large groups

LARGE = 20_000
WIDTH = 2000
RUNNING = 50
"""How many jobs of the group, and how many others, end while it is retried."""


async def a_large_group(store: PostgresStore) -> UUID:
    """Layers, each job after two of the layer before; all have failed but the first ones."""
    group = new_id()
    for first in range(0, LARGE, 5000):
        nodes = []
        for place in range(first, first + 5000):
            above = place - WIDTH
            after = () if above < RUNNING else (above, above + 1 if above % WIDTH else above - 1)
            nodes.append(a_node(group, place, f"k{place}", tuple(sorted(after)), None, None))
        head = GroupHead(group, "g", LARGE, False)
        answer = await store.submit_group(GroupPart(head, first, tuple(nodes)))
        assert isinstance(answer, GroupSubmitted)
    return group


async def fail_all(tx: Transaction, group: UUID) -> None:
    """All jobs of a group that wait or are ready have failed, and everybody knows."""
    code, live = CODES[S.FAILED], LARGE - RUNNING
    await tx.fetch(
        f"""UPDATE longshore.job SET state = {code}, ended_at = now()
        WHERE group_id = $1 AND worker IS NULL""",
        group,
    )
    await tx.fetch("UPDATE longshore.node SET unmet = 0, marks = 1 WHERE place >= $1", WIDTH)
    await tx.fetch("INSERT INTO longshore.group_count VALUES ($1, 1, $2, $2, 0)", group, live)
    await tx.fetch(
        f"UPDATE longshore.job_group SET state = {GROUP_CODES[G.RUNNING]} WHERE id = $1", group
    )


async def test_others_go_on_while_a_large_group_is_retried(
    backend: PostgresBackend, scene: Scene
) -> None:
    """Claims, ends, leases and other groups, and also the ends of the jobs of the group itself."""
    async with PostgresBackend(backend.url).opened() as store:
        assert isinstance(store, PostgresStore)
        group = await a_large_group(store)
        slot = await scene.attend()
        mine = await scene.claim(slot, most=RUNNING)
        await store._keeping.run(lambda tx: fail_all(tx, group))
        retrying = asyncio.create_task(store.retry_group(group, "me", new_id()))
        steps = rounds = 0
        while not retrying.done():
            await scene.accepted(a_job())
            [other] = await scene.claim(slot)
            ends: list[End] = [done(other, Succeeded)]
            ends += [done(mine.pop(), Succeeded)] if mine else []
            await scene.finish(*ends)
            await scene.store.renew(scene.dispatcher, "it")
            steps += await is_under_way(store, group)
            rounds += 1
        plan = await retrying
        assert plan is not None
        assert len(plan.reopened) == LARGE - RUNNING
        assert steps > 20, (steps, rounds)
        assert await store.examine_group(group) == []


async def is_under_way(store: PostgresStore, group: UUID) -> bool:
    """Whether the decision was made, and not all of it is done."""
    query = "SELECT done FROM longshore.group_reopening WHERE group_id = $1"
    return bool(await store._reading.fetch(query, group))


async def test_no_transaction_of_a_retry_changes_more_than_its_step(scene: Scene) -> None:
    """Whatever the group: counted in rows that each transaction writes."""
    group = await failed(scene)
    store = cast("PostgresStore", scene.store)
    store.most_reopened = 2
    await group.end("x")
    await run_to_the_end(group)
    assert await group.group_state() is G.FAILED
    written: list[int] = []
    pool = store._keeping

    class Gauge:
        async def run(self, work: Work[Any]) -> Any:
            async def gauged(tx: Transaction) -> Any:
                [before] = await tx.fetch(WRITTEN)
                answer = await work(tx)
                [after] = await tx.fetch(WRITTEN)
                written.append(after["rows"] - before["rows"])
                return answer

            return await pool.run(gauged)

    store._keeping = cast("ConnectionPool", Gauge())
    plan = await store.retry_group(group.id, "me", new_id())
    store._keeping = pool
    assert plan is not None
    assert len(plan.reopened) == 4
    assert max(written) == 2, written


WRITTEN = """
SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint AS rows FROM pg_stat_xact_user_tables
WHERE schemaname = 'longshore' AND relname IN ('job', 'node', 'edge')
"""


# between the look and the first transaction


def after_the_look(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[object]]
) -> None:
    """Something happens once, when a retry has looked at its group and has not begun yet."""
    look = group_reopening._look

    async def looked(pool: ConnectionPool, asked: GroupRetry) -> object:
        found = await look(pool, asked)
        monkeypatch.setattr(group_reopening, "_look", look)
        await happens()
        return found

    monkeypatch.setattr(group_reopening, "_look", looked)


async def test_a_job_that_is_added_after_the_look_waits_for_what_runs_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await scene.submit_group(a_group({"j": "", "k": "", "m": "j"}))
    await group.claim()
    await group.end("j")
    await group.settle()
    await group.claim()
    await group.end("m")
    await group.settle()
    added = AddedNode("z", structs.replace(a_job(), id=UUID(int=0)), ("j", "k"))
    store = scene.store
    after_the_look(monkeypatch, lambda: store.add_to_group(group.id, new_id(), [added]))
    plan = await store.retry_group(group.id, "me", new_id(), keys=("j",))
    assert plan is not None
    assert set(plan.reopened) == {"j", "m"}
    await group.settle()
    await group.look()
    assert await group.claim() == {"j"}
    await group.end("j")
    await group.settle()
    assert await group.claim() == {"m"}, "z waits for k, which still runs"


async def test_a_failure_that_spreads_after_the_look_is_retried_to_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await scene.submit_group(a_group({"a": "", "x": "", "b": "a", "c": "b", "d": "c"}))
    await group.claim()
    await group.end("a", how=Failed)
    after_the_look(monkeypatch, group.settle)
    plan = await scene.store.retry_group(group.id, "me", new_id())
    assert plan is not None
    assert set(plan.reopened) == {"a", "b", "c", "d"}
    await group.settle()
    states = await group.states()
    assert [states[key] for key in "abcd"] == [S.READY, S.WAITING, S.WAITING, S.WAITING]
