"""Groups in the SDK: how they are described, what is refused, what is sent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest

from longshore import App, GroupState, JobState, Limit
from longshore.client import group as groups
from longshore.client import group_plan
from longshore.client.run_times import FRESH_S, KnownRunTimes
from longshore.errors import (
    Conflict,
    DispatcherUnavailable,
    InvalidInput,
    NotFinished,
    NotFound,
    ProtocolError,
    WouldBlock,
    WrongState,
)
from longshore.model.group import Condition, GroupVerdict, RetryPlan, RunPlan
from longshore.model.job import Ended
from longshore.model.limits import JobLimit
from longshore.model.run_time import RunTime
from longshore.payload.values import pack
from longshore.wire import messages

from .fake import SILENT, FakeDispatcher


class Kinds:
    """An app with two kinds."""

    def __init__(self, app: App) -> None:
        @app.job
        def fetch(url: str) -> int:
            return len(url)

        @app.job(kind="text/pack")
        def pack(n: int) -> str:
            return str(n)

        self.fetch, self.pack = fetch, pack


@pytest.fixture
def kinds(app: App) -> Kinds:
    return Kinds(app)


def submit(
    group: groups.GroupBuilder, kinds: Kinds, jobs: list[tuple[str | None, list[str]]]
) -> None:
    """Submits a group of these keys, each with what it depends on."""
    with group:
        for key, after in jobs:
            group.add(kinds.fetch.call("u"), key=key, after=after)


def sent(fake: FakeDispatcher) -> messages.SubmitGroup:
    [request] = fake.of(messages.SubmitGroup)
    assert isinstance(request, messages.SubmitGroup)
    return request


def test_a_group_is_sent_with_its_limit(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    with app.group("nightly", limit=Limit(5)) as group:
        group.add(kinds.pack.call(0))
    assert sent(fake).part.head.limit == JobLimit("group=", 5)
    for wrong, words in (
        (Limit(5, key="tenant"), "it counts the jobs of the group"),
        (Limit(5, full="drop_newest"), "leave out full"),
        (5, "one Limit, like Limit"),
    ):
        with pytest.raises(InvalidInput, match=words):
            app.group("nightly", limit=wrong)  # type: ignore[arg-type]


def test_a_group_is_sent_as_one_in_the_order_in_which_it_starts(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("nightly", fail_fast=True, labels=["a"]) as group:
        lone = group.add(kinds.pack.call(0))
        a = group.add(kinds.fetch.call("u"))
        b = group.add(kinds.fetch.call("v"), after=[a])
        c = group.add(kinds.pack.call(3), after=[b, "fetch"], on="ended", key="last")
    request = sent(fake)
    head, nodes = request.part.head, request.part.nodes
    assert (head.name, head.jobs, head.fail_fast, head.labels) == ("nightly", 4, True, ("a",))
    assert (request.part.first, request.edges, request.strict) == (0, 3, False)
    assert [node.key for node in nodes] == ["fetch", "fetch-2", "text.pack", "last"]
    assert [node.after for node in nodes] == [(), (0,), (), (0, 1)]
    assert [node.on for node in nodes][-1] is Condition.ENDED
    assert (lone.key, a.key, b.key, c.key) == ("text.pack", "fetch", "fetch-2", "last")
    assert (group.handle.id, group.handle.number, group.handle.name) == (head.id, 100, "nightly")
    assert repr(group.handle) == f"<GroupHandle of group 100 (nightly) {head.id}>"


def in_order_of_times(app: App, kinds: Kinds) -> list[str]:
    """The order of a group: one 'pack' on its own beside a chain of two 'fetch'."""
    with app.group("g") as group:
        first = group.add(kinds.fetch.call("u"), key="first")
        group.add(kinds.fetch.call("v"), key="second", after=first)
        group.add(kinds.pack.call(0), key="lone")
    return [node.key for node in group.handle.jobs()]


def test_the_path_that_took_longest_in_earlier_runs_starts_first(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    times = (RunTime("fetch", 3, 1.0), RunTime("text/pack", 3, 2.5))
    fake.replies[messages.ListRunTimes] = lambda request: times
    assert in_order_of_times(app, kinds) == ["lone", "first", "second"]
    [asked] = fake.of(messages.ListRunTimes)
    assert asked.kinds == ("fetch", "text/pack")


def test_the_times_of_kinds_are_asked_once_a_minute(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    for _ in range(3):
        assert in_order_of_times(app, kinds) == ["first", "second", "lone"]
    assert len(fake.of(messages.ListRunTimes)) == 1


def test_a_dispatcher_that_knows_no_times_gets_the_group_all_the_same(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    """As one of an older version does."""
    fake.replies[messages.ListRunTimes] = lambda request: ProtocolError("what is that?")
    assert in_order_of_times(app, kinds) == ["first", "second", "lone"]


def test_of_a_group_of_one_kind_no_times_are_asked(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    submit(app.group("g"), kinds, [("a", []), ("b", ["a"])])
    assert fake.of(messages.ListRunTimes) == []


def test_answers_about_times_become_old() -> None:
    known = KnownRunTimes()
    time = RunTime("a", 1, 2.0)
    assert known.missing(["b", "a"], 0.0) == ("a", "b")
    known.learn(("a", "b"), [time], 0.0)
    assert known.missing(["a", "b", "c"], FRESH_S / 2) == ("c",)
    assert known.of(["a", "b", "c"]) == {"a": time}
    assert known.missing(["a", "b"], FRESH_S) == ("a", "b")
    assert known.of(["a"]) == {}


def test_coroutines_use_async_with(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    async def main() -> GroupState:
        with pytest.raises(WouldBlock, match="use `async with`"), app.group("x"):
            pass
        async with app.group("x", strict=True) as group:
            job = group.add(kinds.fetch.call("u"))
        assert sent(fake).strict
        fake.end(job.handle.id, pack(3, "a result"))
        assert await job.handle.result_async() == 3
        fake.conclude(Ended(group.handle.id, JobState.SUCCEEDED))
        assert await group.handle.result_async("fetch") == 3
        state = await group.handle.wait_async(30)
        await app.close_async()
        return state

    assert asyncio.run(main()) is GroupState.SUCCEEDED


def test_an_exception_in_the_block_submits_nothing(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    group = app.group("x")

    def break_off() -> None:
        with group:
            group.add(kinds.fetch.call("u"))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        break_off()
    assert not fake.requests
    with pytest.raises(WrongState, match="is not submitted yet"):
        _ = group.handle


GRAPHS: dict[str, tuple[list[tuple[str | None, list[str]]], str]] = {
    "a cycle": ([("a", ["b"]), ("b", ["a"])], "these jobs wait for each other: 'a' after 'b'"),
    "itself": ([("a", ["a"])], "job 'a' depends on itself"),
    "unknown": ([("left", []), ("b", ["lefft"])], r"depends on 'lefft', .*\(nearest: 'left'\)"),
    "a key used twice": ([("a", []), ("a", [])], "2 jobs have the key 'a'"),
    "a key that a default took": ([(None, []), ("fetch", [])], "2 jobs have the key 'fetch'"),
}


@pytest.mark.parametrize("what", GRAPHS)
def test_a_group_that_could_not_run_is_refused_at_the_end_of_the_block(
    app: App, fake: FakeDispatcher, kinds: Kinds, what: str
) -> None:
    jobs, said = GRAPHS[what]
    with pytest.raises(InvalidInput, match=said) as raised:
        submit(app.group("nightly"), kinds, jobs)
    assert str(raised.value).startswith("group 'nightly': ")
    assert not fake.requests


def test_what_is_wrong_with_one_job_is_said_where_it_is_added(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("other") as other:
        foreign = other.add(kinds.fetch.call("u"))
    call = kinds.fetch.call("u")
    later = kinds.fetch.options(run_at=datetime(2040, 1, 1, tzinfo=UTC)).call("u")
    group = app.group("nightly")
    group.add(call)
    for bad, said in (
        (lambda: group.add(call), r"job 'fetch': its call is in the group already"),
        (lambda: group.add(later), "run_at cannot be kept in a group"),
        (lambda: group.add(kinds.fetch.call("u"), key="a/"), "'/' between the names of"),
        (lambda: group.add(kinds.fetch.call("u"), key="k" * 201), "201 characters"),
        (lambda: group.add(kinds.fetch.call("u"), on="ended"), "depends on nothing"),
        (lambda: group.add(kinds.fetch.call("u"), after="a", on="done"), "on is 'done'; it must"),
        (lambda: group.add(kinds.fetch.call("u"), after=foreign), "of another group"),
        (lambda: group.add(kinds.fetch.call("u"), after=3), "after is 3"),  # type: ignore[arg-type]
        (lambda: group.add(kinds.fetch.call("u"), after=[3]), "after has 3"),  # type: ignore[list-item]
        (lambda: group.add(kinds.fetch), "is not a call"),  # type: ignore[arg-type]
        (lambda: app.group(""), "the group's name is ''"),
        (lambda: app.group("x", labels="ab"), "give a list of texts"),
    ):
        with pytest.raises(InvalidInput, match=said):
            bad()
    with pytest.raises(WrongState, match="nothing can be added"):
        other.add(kinds.fetch.call("u"))


def test_a_large_group_goes_in_parts(
    app: App, fake: FakeDispatcher, kinds: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_plan, "MAX_PART_JOBS", 2)
    with app.group("large") as group:
        before: list[groups.GroupJob[int]] = []
        for n in range(5):
            before = [group.add(kinds.fetch.call(str(n)), after=before)]
    parts = [request.part for request in fake.of(messages.SubmitGroup)]
    assert [(part.first, len(part.nodes)) for part in parts] == [(0, 2), (2, 2), (4, 1)]
    assert len({part.head for part in parts}) == 1
    assert [node.key for node in group.handle.jobs()][-1] == "fetch-5"


def test_a_group_whose_second_part_is_refused_is_cancelled(
    app: App, fake: FakeDispatcher, kinds: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its first part would stay for ever."""
    monkeypatch.setattr(group_plan, "MAX_PART_JOBS", 1)
    answer = fake._answer

    def refuse_the_second(request: messages.SubmitGroup) -> object:
        return answer(request) if request.part.first == 0 else Conflict("taken")

    fake.replies[messages.SubmitGroup] = refuse_the_second
    group = app.group("x")
    with pytest.raises(Conflict, match="taken"):
        submit(group, kinds, [("a", []), ("b", [])])
    [cancel] = fake.of(messages.CancelGroup)
    assert cancel.group == group._plan.head.id


def test_a_part_without_an_answer_is_sent_again_as_it_was(
    fake: FakeDispatcher, kinds: Kinds
) -> None:
    first: list[messages.SubmitGroup] = []

    def silent_once(request: messages.SubmitGroup) -> object:
        first.append(request)
        return SILENT if len(first) == 1 else fake._answer(request)

    fake.replies[messages.SubmitGroup] = silent_once
    with App("again", fake.address, timeout_s=10) as app:
        again = Kinds(app)
        with app.group("x") as group:
            group.add(again.fetch.call("u"))
    assert first[0] == first[1]


def test_no_dispatcher_is_said_so(kinds: Kinds) -> None:
    with App("alone", "tcp://127.0.0.1:9", timeout_s=0.1) as app:
        own = Kinds(app)
        with pytest.raises(DispatcherUnavailable), app.group("x") as group:
            group.add(own.fetch.call("u"))


def test_an_empty_group_is_sent_too(app: App, fake: FakeDispatcher) -> None:
    with app.group("nothing"):
        pass
    assert (sent(fake).part.head.jobs, sent(fake).part.nodes) == (0, ())


def test_a_handle_tells_of_its_group(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    with app.group("x") as group:
        group.add(kinds.fetch.call("u"))
    handle = group.handle
    assert handle.status() is GroupState.RUNNING
    assert handle.group().counts == {"ready": 1}
    assert [node.key for node in handle.jobs()] == ["fetch"]
    with pytest.raises(NotFinished, match=r"group 100 \(x\) has not ended within 0 s: 1 ready"):
        handle.wait(0)
    assert handle.cancel() is GroupVerdict.CANCELLING
    fake.conclude(Ended(handle.id, JobState.FAILED))
    assert handle.wait(30) is GroupState.FAILED
    assert handle.wait() is GroupState.FAILED, "known by now"
    fake.replies[messages.CancelGroup] = lambda request: GroupVerdict.NOT_FOUND
    with pytest.raises(NotFound, match="there is no group"):
        handle.cancel()


def test_a_handle_runs_its_group_anew(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    """The dispatcher copies in steps: the client asks until all of it is there."""
    with app.group("x") as group:
        group.add(kinds.fetch.call("u"))
    handle = group.handle
    plan = handle.rerun_plan(from_="a/")
    assert (plan.keys, plan.anew, plan.taken_over, plan.run) == (("a/",), 1, 2, None)
    again = handle.rerun(["a"])
    assert (again.number, again.name) == (99, "x")
    looked, *steps = fake.of(messages.RerunGroup)
    assert (looked.keys, looked.dry_run) == (("a/",), True)
    assert [(one.id, one.keys, one.dry_run) for one in steps] == [(again.id, ("a",), False)] * 2
    refused = RunPlan(handle.id, refused="it is running")
    fake.replies[messages.RerunGroup] = lambda request: refused
    for ask in (handle.rerun, handle.rerun_plan):
        with pytest.raises(WrongState, match=r"group 100 \(x\) cannot be run anew: it is running"):
            ask()


def test_a_handle_pauses_and_retries_its_group(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("x") as group:
        group.add(kinds.fetch.call("u"))
    handle = group.handle
    assert handle.pause() is GroupVerdict.PAUSED
    assert handle.resume() is GroupVerdict.RUNNING
    fake.conclude(Ended(handle.id, JobState.FAILED))
    assert handle.wait(30) is GroupState.FAILED
    assert handle.retry(plan=True).reopened == ("fetch",)
    fake.conclude(Ended(handle.id, JobState.SUCCEEDED))
    assert handle.wait(30) is GroupState.SUCCEEDED, "it asks each time: others may retry it"
    assert handle.retry(["a", "b"]).reopened == ("a", "b")
    assert handle.wait(30) is GroupState.SUCCEEDED, "asked for anew"
    assert handle.retry(from_="c").reopened == ("c",)
    asked = [(one.keys, one.dry_run) for one in fake.of(messages.RetryGroup)]
    assert asked == [((), True), (("a", "b"), False), (("c",), False)]
    fake.replies[messages.RetryGroup] = lambda request: RetryPlan(handle.id, refused="'a' runs")
    with pytest.raises(WrongState, match=r"group 100 \(x\) cannot be retried: 'a' runs"):
        handle.retry()
    with pytest.raises(InvalidInput, match=r"from_ is \[7\]; give the keys of jobs"):
        handle.retry([7])  # type: ignore[list-item]
    fake.replies[messages.PauseGroup] = lambda request: GroupVerdict.NOT_FOUND
    with pytest.raises(NotFound, match="there is no group"):
        handle.pause()


def test_a_handle_of_a_group_submitted_elsewhere(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("x") as group:
        job = group.add(kinds.fetch.call("u"))
    handle = app.group_handle(100)
    for ref in ("100", group.handle.id, str(group.handle.id)):
        assert {app.group_handle(ref), handle} == {group.handle}
    fake.end(job.handle.id, pack(5, "a result"))
    assert handle.result("fetch", 30) == 5
    with pytest.raises(NotFound, match="has no job 'other'"):
        handle.job("other")
    with pytest.raises(InvalidInput, match="'ten' is not a group"):
        app.group_handle("ten")
    fake.replies[messages.ShowGroup] = lambda request: NotFound("there is no group")
    with pytest.raises(NotFound):
        app.group_handle(UUID(int=1))


def test_a_job_of_a_group_is_named_by_its_key(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    with app.group("x") as group:
        job = group.add(kinds.fetch.call("u"), key="first")
    fake.conclude(Ended(job.handle.id, JobState.SKIPPED))
    with pytest.raises(Exception, match=r"job 'first' of group 100 \(x\) ended as skipped"):
        job.handle.result(30)


def test_calls_of_another_app_go_where_the_group_goes(app: App, fake: FakeDispatcher) -> None:
    elsewhere = Kinds(App("elsewhere", "tcp://127.0.0.1:9", timeout_s=0.1))
    with app.group("x") as group:
        job = group.add(elsewhere.fetch.call("u"))
    fake.end(job.handle.id, pack(4, "a result"))
    assert job.handle.result(30) == 4
