"""The kit runs groups that grow: maps, gates, sub-groups and what jobs add."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import longshore
from longshore import App, GroupState, JobState
from longshore.errors import InvalidInput, JobFailed, NotFinished, WrongState
from longshore.testing import run_inline

Value = int | str | list[int] | dict[str, Any]


class Kinds:
    """An app that works on pages; `ran` says what ran."""

    def __init__(self) -> None:
        self.app = app = App("paper")
        self.ran = ran = list[str]()

        @app.job
        def find(count: int) -> list[int]:
            return list(range(count))

        @app.job
        def scale(page: int, factor: int = 1) -> int:
            ran.append(f"scale {page}")
            return page * factor

        @app.job
        def total(numbers: list[int]) -> int:
            ran.append("total")
            return sum(numbers)

        @app.job
        async def grow(depth: int) -> int:
            ran.append(f"grow {depth}")
            if depth:
                group = longshore.current().group
                one = group.add(grow.call(depth - 1), key="down")
                scaled = group.map(scale, over=[depth, 1], factor=2)
                group.add(total.call([one.result]), after=scaled, key="sum")
            return depth

        @app.job
        def tell(value: Value) -> str:
            ran.append("tell")
            return f"told {value}"

        self.find, self.scale, self.total = find, scale, total
        self.grow, self.tell = grow, tell


@pytest.fixture
def kinds() -> Kinds:
    return Kinds()


def test_a_map_runs_over_a_result_and_an_empty_one_gives_an_empty_list(kinds: Kinds) -> None:
    with run_inline(kinds.app) as kit:
        with kinds.app.group("mapped") as group:
            for count in (3, 0):
                found = group.add(kinds.find.call(count), key=f"find-{count}")
                scaled = group.map(kinds.scale, over=found.result, factor=10, key=f"scale-{count}")
                group.add(kinds.total.call(scaled.results), key=f"total-{count}")
        kit.drain()
        assert group.handle.wait() is GroupState.SUCCEEDED
        assert group.handle.result("total-3") == 30
        assert group.handle.result("total-0") == 0
        assert group.handle.result("scale-3/2") == 20


def test_what_depends_on_a_job_waits_for_all_that_it_added(kinds: Kinds) -> None:
    with run_inline(kinds.app) as kit:
        with kinds.app.group("grown") as group:
            first = group.add(kinds.grow.call(2))
            group.add(kinds.tell.call("end"), after=first)
        kit.drain()
        assert group.handle.wait() is GroupState.SUCCEEDED
        assert kinds.ran[-1] == "tell"
        assert kinds.ran.count("total") == 2
        keys = {node.key for node in group.handle.jobs()}
        assert {"grow/down/down", "grow/down/scale/1", "grow/sum"} <= keys
        assert group.handle.result("grow/sum") == 1


def test_a_job_outside_a_group_that_adds_jobs_fails_and_says_so(kinds: Kinds) -> None:
    with run_inline(kinds.app) as kit:
        handle = kinds.grow.submit(1)
        kit.drain()
        assert handle.status() is JobState.FAILED
        assert "it is in no group" in handle.why()
        assert kinds.ran == ["grow 1"]


def test_a_gate_is_opened_with_a_value_or_fails_at_its_timeout(kinds: Kinds) -> None:
    with run_inline(kinds.app) as kit:
        with kinds.app.group("gated") as group:
            gate = group.gate("approve", timeout_s=60)
            told = group.add(kinds.tell.call(gate.result["by"]))
        with kinds.app.group("late") as late:
            closed = late.gate("approve", after=late.add(kinds.tell.call(1)), timeout_s=60)
        with pytest.raises(WrongState, match="cannot be opened yet"):
            kit.open_gate(late, "approve")
        kit.drain()
        assert kinds.ran == ["tell"], "only the job before the gate"
        assert "waiting until somebody opens this gate" in gate.handle.why()
        assert gate.handle.why().endswith("; expires in 1 min 0 s if nobody opens it")
        kit.open_gate(group, "approve", {"by": "ann"})
        kit.drain()
        assert told.handle.result() == "told ann"
        kit.advance(61)
        kit.drain()
        assert late.handle.wait() is GroupState.FAILED
        assert "nobody opened it" in closed.handle.why()


def test_an_asynchronous_test_opens_a_gate_of_an_eager_kit(kinds: Kinds) -> None:
    async def main() -> str:
        with run_inline(kinds.app, eager=True):
            async with kinds.app.group("gated") as group:
                gate = group.gate("approve")
                told = group.add(kinds.tell.call(gate.result))
            await group.handle.open_async("approve", 7)
            return await told.handle.result_async()

    assert asyncio.run(main()) == "told 7"


def test_a_subgroup_is_depended_on_cancelled_and_retried_as_one(kinds: Kinds) -> None:
    with run_inline(kinds.app) as kit:
        with kinds.app.group("parts") as group:
            part = group.sub("part")
            part.map(kinds.scale, over=[1, 2])
            part.sub("inner").add(kinds.tell.call("x"))
            group.add(kinds.total.call([1]), after=part)
            group.add(kinds.tell.call("y"), key="beside")
        handle = group.handle
        handle.cancel("part/inner")
        kit.drain()
        assert handle.wait() is GroupState.FAILED
        states = {node.key: node.state.value for node in handle.jobs()}
        assert states["part/inner/tell"] == "cancelled"
        assert states["part/scale/1"] == states["beside"] == "succeeded"
        assert states["total"] == "dependency_failed"
        assert set(handle.retry("part/", plan=True).retired) == {"part/scale/0", "part/scale/1"}
        handle.retry("part/")
        kit.drain()
        assert handle.wait() is GroupState.SUCCEEDED
        assert kinds.ran[-1] == "total"
        with pytest.raises(longshore.errors.NotFound, match="no job 'parts/'"):
            handle.cancel("parts/")


def test_a_retry_gives_a_job_other_arguments(kinds: Kinds) -> None:
    with run_inline(kinds.app) as kit:
        with kinds.app.group("again") as group:
            found = group.add(kinds.find.call(2))
            group.map(kinds.scale, over=found.result)
            group.add(kinds.tell.call(found.result))
        kit.drain()
        handle = group.handle
        plan = handle.retry("find", args={"count": 1})
        assert (plan.reopened, plan.retired) == (("find", "scale", "tell"), ("scale/0", "scale/1"))
        kit.drain()
        assert handle.result("tell") == "told [0]"
        assert [node.key for node in handle.jobs()] == ["find", "scale", "tell", "scale/0"]
        handle.retry("tell", args={"value": {"$result": {"job": "find"}}})
        kit.drain()
        assert handle.result("tell") == "told {'$result': {'job': 'find'}}"
        for keys, args, said in (
            ("find", {"counts": 1}, "has no parameter 'counts'"),
            (["find", "tell"], {"count": 1}, "other arguments are for one job"),
            ("scale", {"over": []}, "it takes no arguments"),
        ):
            with pytest.raises(InvalidInput, match=said):
                handle.retry(keys, args=args)


def test_the_result_of_a_map_is_the_list_of_its_jobs_results(kinds: Kinds) -> None:
    app = kinds.app
    with run_inline(app) as kit:
        with app.group("g") as group:
            scaled = group.map(kinds.scale, over=[3, 1, 2], factor=10)
            none = group.map(kinds.scale, over=[], key="none")
        with pytest.raises(WrongState, match="there is more to run"):
            kit.drain(most=1)
        assert scaled.handle.status() == "running"
        with pytest.raises(NotFinished, match="2 jobs have not ended"):
            scaled.handle.result(timeout_s=0)
        kit.drain()
        assert scaled.handle.status() == "succeeded"
        assert scaled.handle.result() == group.handle.result("scale") == [30, 10, 20]
        assert app.group_handle(group.handle.number).result("scale") == [30, 10, 20]
        assert none.handle.result() == []


def test_the_result_of_a_map_of_which_a_job_failed_names_it(kinds: Kinds) -> None:
    app = kinds.app

    @app.job
    def half(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    @app.job
    def seven() -> Any:
        return 7

    with run_inline(app) as kit:
        with app.group("g") as group:
            group.map(half, over=[2, 3, 5])
            group.map(half, over=group.add(seven.call()).result, key="bad")
        kit.drain(raise_failures=False)
        said = "2 of its 3 jobs did not succeed; 'half/1' failed: ValueError: 3 is odd"
        with pytest.raises(JobFailed, match=said):
            group.handle.result("half")
        with pytest.raises(JobFailed, match=r"'bad' of group .* failed: a map goes over a list"):
            group.handle.result("bad")
