"""Workers that mean harm to others: no dispatcher believes what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args
from uuid import UUID

import pytest
from msgspec import convert, structs

from longshore.core.logs import MOST_LINE_BYTES, MOST_STEP_BYTES
from longshore.core.worker_limits import (
    MAX_HELD,
    MAX_KINDS,
    MAX_QUEUES,
    MAX_SCHEMA_CHARS,
    MAX_SLOTS,
    MAX_TEXT_CHARS,
)
from longshore.dispatcher.commits import OnFinished
from longshore.model.ends import End
from longshore.model.job import JobError, JobState, LogEntry, LogKind, Reason, RetryPolicy
from longshore.model.reports import FailureReport, OutboxJob, ReleaseReport, Report, SuccessReport
from longshore.model.worker import KindInfo, KindTerms, Parameter, Pool
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m
from longshore.wire.codec import encode, from_dispatcher
from longshore.wire.dispatcher_side import MAX_STRAYS

from .stage import Stage, worker_id
from .test_stories import tell


class Stranger:
    """A worker that is played by hand, and says what it claims."""

    def __init__(self, stage: Stage, to: str = "d1", key: str = "") -> None:
        self.heard: list[m.DispatcherMessage] = []
        self._link = stage.network.connect(f"{to}/workers", self._receive)
        stage.network.listeners[f"{to}/workers"].keys[self._link.identity] = key
        self._stage = stage

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        self.heard += [from_dispatcher.decode(frames) for _, frames in arrived]

    def say(self, message: m.WorkerMessage) -> None:
        if isinstance(message, m.Ready):
            self.worker = message.worker
        self._link.send(b"", encode(message))

    async def told(self, kind: type[m.DispatcherMessage]) -> m.DispatcherMessage:
        """The first message of a kind, once it came."""
        await self._stage.until(lambda: any(isinstance(one, kind) for one in self.heard), 30.0)
        return next(one for one in self.heard if isinstance(one, kind))


def introduction(**changes: object) -> m.Ready:
    return structs.replace(
        m.Ready(
            v=m.PROTOCOL_VERSION,
            worker=new_id(),
            kinds={"else": KindInfo()},
            pools={Pool.COROUTINE: 100, Pool.PROCESS: 1},
        ),
        **changes,
    )


async def attended(stage: Stage) -> Stranger:
    stranger = Stranger(stage)
    stranger.say(introduction())
    await stranger.told(m.Welcome)
    return stranger


@pytest.mark.parametrize("report", get_args(Report))
def test_a_worker_cannot_end_another_ones_job(report: type[Report]) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        stranger = await attended(stage)
        wire: dict[str, object] = {
            "kind": report.__struct_config__.tag,
            "after_s": 0.0,
            "job": id,
            "token": token,
        }
        wire["turn"] = {"state": b"", "version": 1, "read": 0}
        stranger.say(m.Done(stranger.worker, (convert(wire, report),)))
        assert await stranger.told(m.Ack) == m.Ack(stranger.worker, (), ((id, token),)), (
            "it may forget it"
        )
        assert await stage.state(job) is JobState.RUNNING
        worker.jobs.succeed()
        (ended,) = await client.wait(job)
        assert ended.result == b"\x2a"

    tell(story)


def test_a_worker_cannot_speak_for_another_ones_attempt() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        stranger = await attended(stage)
        stranger.say(m.Logs(stranger.worker, (LogEntry(id, token, 1, LogKind.STEP, b"stolen"),)))
        stranger.say(m.Ping(stranger.worker, 1))
        await stranger.told(m.Pong)
        worker.jobs.succeed()
        await client.wait(job)
        assert await stage.model.logs(id) == []

    tell(story)


def test_reports_of_nothing_do_not_pile_up_before_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        pump, lengths = (await stage.dispatcher())._commits, list[int]()
        finish = pump.finish

        def counted(ends: Sequence[End], on_finished: OnFinished) -> None:
            lengths.append(pump._queued_ends)
            finish(ends, on_finished)

        monkeypatch.setattr(pump, "finish", counted)
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        stranger = await attended(stage)
        made_up = [ReleaseReport(new_id(), n) for n in range(3 * MAX_STRAYS)]
        stranger.say(m.Done(stranger.worker, tuple(made_up)))
        worker.jobs.succeed()
        assert [one.state for one in await client.wait(job)] == [JobState.SUCCEEDED]
        assert max(lengths) <= MAX_STRAYS

    tell(story)


def test_of_many_late_reports_all_are_answered_in_the_end() -> None:
    """A worker that comes back under a new id may hold more reports than the bound."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stranger = await attended(stage)
        late = [(new_id(), n) for n in range(2 * MAX_STRAYS)]
        stranger.say(m.Done(stranger.worker, tuple(SuccessReport(*one) for one in late)))
        for no in range(20):
            for told in stranger.heard:
                if isinstance(told, m.Resend):
                    reports = [SuccessReport(*one) for one in told.attempts]
                    stranger.say(m.Done(stranger.worker, tuple(reports)))
                elif isinstance(told, m.Ack):
                    late = [one for one in late if one not in told.stale]
            stranger.heard.clear()
            stranger.say(m.Ping(stranger.worker, no, unacknowledged=tuple(late)))
            await stranger.told(m.Pong)
        assert not late

    tell(story)


def test_a_result_from_before_a_worker_was_orphaned_is_answered_and_forgotten() -> None:
    """It comes back under a new id, so it has lost its job, which runs again."""

    async def story(stage: Stage) -> None:
        await stage.dispatcher("d1")
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        before = worker_id(worker)
        stage.network.cut.add("d1/workers")
        worker.jobs.succeed()
        stage.network.cut.clear()
        worker.worker._session.rejoin(new_id(), stage.clock.now())
        worker.worker._flush()
        await stage.until(lambda: worker_id(worker) != before)
        await stage.until(lambda: worker.worker._session.settled or bool(worker.jobs.running))
        await stage.until(lambda: bool(worker.jobs.running))
        worker.jobs.succeed()
        (ended,) = await client.wait(job)
        assert ended.state is JobState.SUCCEEDED
        await stage.until(lambda: worker.worker._session.settled)

    tell(story)


# keys


def test_with_keys_a_worker_is_whoever_has_its_key() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        owner, thief = Stranger(stage, key="owner"), Stranger(stage, key="thief")
        id, client = new_id(), stage.client()
        kinds = {"work": KindInfo(Pool.COROUTINE, (Parameter("n", required=False),))}
        owner.say(introduction(worker=id, kinds=kinds))
        await owner.told(m.Welcome)
        job = a_job()
        await client.submit(job)
        await owner.told(m.Jobs)
        thief.say(introduction(worker=id, kinds=kinds, session=2**62))
        gone = await thief.told(m.Gone)
        assert isinstance(gone, m.Gone)
        assert "another worker has this id" in gone.reason
        assert not [one for one in thief.heard if isinstance(one, m.Jobs)]
        again = Stranger(stage, key="owner")
        again.say(introduction(worker=id, kinds=kinds, session=2))
        assert isinstance(await again.told(m.Jobs), m.Jobs)

    tell(story)


def test_with_keys_what_comes_with_another_key_over_a_connection_is_not_heard() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        owner = Stranger(stage, key="owner")
        owner.say(introduction())
        await owner.told(m.Welcome)
        keys = stage.network.listeners["d1/workers"].keys
        keys[owner._link.identity] = "thief"
        owner.say(m.Bye(owner.worker))
        owner.say(m.Ping(owner.worker, 1))
        sent_at = stage.clock.now()
        await stage.until(lambda: stage.clock.now() > sent_at)
        keys[owner._link.identity] = "owner"
        owner.say(m.Ping(owner.worker, 2))
        pong = await owner.told(m.Pong)
        assert isinstance(pong, m.Pong)
        assert pong.no == 2

    tell(story)


# what a worker says of itself

SCHEMA = Parameter("x", schema="x" * (MAX_SCHEMA_CHARS + 1))
BAD: list[tuple[dict[str, object], str]] = [
    ({"name": "x\nERROR forged line"}, r"the worker's name is 'x\nERROR forged line'"),
    ({"name": "x\x1b[31mred"}, "has a character that cannot be printed"),
    ({"name": "x\u202egnp"}, "has a character that cannot be printed"),
    ({"name": "x" * (MAX_TEXT_CHARS + 1)}, "the worker's name has 301 characters; 300 are allowed"),
    ({"host": "x\x9b"}, "the worker's host is"),
    ({"process": "x\x00"}, "the worker's process is"),
    ({"target": "a b"}, "target 'a b' has a character that names may not have"),
    ({"queues": ("x" * 201,)}, "queue has 201 characters"),
    ({"queues": ("q",) * (MAX_QUEUES + 1)}, "1,001 queues are more than"),
    ({"kinds": {"a b": KindInfo()}}, "kind 'a b' has a character"),
    ({"kinds": {f"k{n}": KindInfo() for n in range(MAX_KINDS + 1)}}, "5,001 kinds are more"),
    ({"kinds": {"k": KindInfo(parameters=(SCHEMA,))}}, "the schema of 'x' of kind 'k' has 100,001"),
    ({"kinds": {"k": KindInfo(messages={"m": (SCHEMA,)})}}, "the schema of 'x' of kind 'k' has"),
    (
        {"kinds": {"k": KindInfo(messages={f"m{n}": None for n in range(501)})}},
        "501 messages of kind 'k' are more",
    ),
    ({"kinds": {"k": KindInfo(terms=KindTerms(queue="a b"))}}, "queue 'a b' has a character"),
    (
        {"kinds": {"k": KindInfo(terms=KindTerms(retry=RetryPolicy(attempts=0)))}},
        "retries is -1; it must be a whole number",
    ),
    ({"pools": {"coroutine": -1}}, "pool 'coroutine' has -1 slots"),
    ({"pools": {"gpu": MAX_SLOTS + 1}}, "pool 'gpu' has 10,001 slots; it may have 0 to 10,000"),
    ({"pools": {f"p{n}": MAX_SLOTS for n in range(3)}}, "30,000 slots are more than the 20,000"),
    ({"pools": {"a b": 1}}, "pool 'a b' has a character"),
    ({"kinds": {"longshore.gate": KindInfo()}}, "kind 'longshore.gate', which no worker runs"),
    ({"pools": {"gpu": 1}}, "kind 'else' is of pool 'coroutine', which is not in pools"),
    ({"held": ((UUID(int=1), 1),) * (MAX_HELD + 1)}, "20,001 attempts are more"),
    ({"v": 99}, "this dispatcher speaks protocol 2, not 99"),
]


@pytest.mark.parametrize(("changes", "words"), BAD)
def test_what_a_worker_may_not_say_of_itself_is_refused_with_the_reason(
    changes: dict[str, object], words: str
) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stranger = Stranger(stage)
        stranger.say(introduction(**changes))
        told = await stranger.told(m.Exit)
        assert isinstance(told, m.Exit)
        assert words in told.reason
        assert not stage.model._workers

    tell(story)


def test_an_error_of_many_megabytes_is_cut() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        error = JobError(Reason.RAISED, "m" * 10**6, "t" * 10**6, "tb" * 10**6)
        worker.jobs.end(FailureReport(id, token, error=error))
        (ended,) = await client.wait(job)
        assert ended.error is not None
        told = ended.error
        assert (len(told.message), len(told.type), len(told.traceback)) == (65_536, 200, 65_536)

    tell(story)


def test_a_long_goodbye_is_cut() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stranger = await attended(stage)
        stranger.say(m.Bye(stranger.worker, "x" * 100_000))
        await stage.until(lambda: not any(row.alive for row in stage.model._workers.values()))
        [row] = stage.model._workers.values()
        assert len(row.ended_why) <= 500

    tell(story)


@pytest.mark.parametrize(
    ("kind", "most"), [(LogKind.TEXT, MOST_LINE_BYTES), (LogKind.STEP, MOST_STEP_BYTES)]
)
def test_a_log_entry_that_nobody_could_read_is_not_kept(kind: LogKind, most: int) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job = a_job()
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        for seq, size in enumerate((most, most + 1, 1), 1):
            worker.worker._session._logs.add(LogEntry(id, token, seq, kind, b"\xff" * size))
        worker.jobs.succeed()
        await client.wait(job)
        assert [entry.seq for entry in await stage.model.logs(id)] == [1, 3]

    tell(story)


def test_a_worker_submits_nothing_that_a_client_could_not() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        worker, client = await stage.worker(), stage.client()
        job, good = a_job(), a_job()
        large = a_job(args=bytes(stage.settings.max_value_bytes + 1))
        await client.submit(job)
        await stage.until(lambda: bool(worker.jobs.running))
        [(id, token)] = worker.jobs.running
        bad = [a_job(kind="x\x1b[2J"), large, *(a_job(priority=2**15) for _ in range(10))]
        report = SuccessReport(id, token, b"\x2a", outbox=tuple(map(OutboxJob, [*bad, good])))
        worker.jobs.end(report)
        (ended,) = await client.wait(job)
        assert ended.state is JobState.SUCCEEDED
        view = await stage.model.job(id)
        assert view is not None
        info = view.history[-1].info
        assert info.startswith("outbox item 0 refused: job 'x")
        assert "outbox item 1 refused: the arguments of job 'work': 1,048,577 bytes" in info
        assert info.endswith("; and 2 more")
        assert [await stage.model.job(one.id) for one in bad] == [None] * len(bad)
        assert await stage.model.job(good.id) is not None

    tell(story)
