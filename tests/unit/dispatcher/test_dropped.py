"""Junk from strangers does not keep the dispatcher from hearing others."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from uuid import UUID

import msgspec
import pytest

from longshore.dispatcher import requests
from longshore.dispatcher.dropped import QUIET_S, DroppedMessages
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.engine import Dispatcher
from longshore.errors import ProtocolError, TooLarge
from longshore.model.job import JobState, Submission
from longshore.model.reports import SuccessReport
from longshore.testing.builders import a_job, new_id
from longshore.testing.virtual import VirtualClock, run_virtually
from longshore.wire import messages as m
from longshore.wire.codec import encode, to_client
from longshore.wire.dispatcher_side import Session

from .stage import Stage
from .test_stories import tell

YEAR_10000 = b"\xc7\x0c\xff" + bytes(4) + (253_402_300_800).to_bytes(8, "big")
DEEP = b"\x81\xa3rid" + b"\x91" * 100_000 + b"\xc0"
JUNK = [
    [b"", b"SUBMIT", b"\x83\xa3rid\x01\xa6strict\xc2\xa4jobs\x91\x81\xa6run_at" + YEAR_10000],
    [b"", b"SHOW", DEEP],
    [b"", b"NONSENSE", DEEP],
    [b"", b"DONE", DEEP],
    [b"", b"PING", YEAR_10000],
    [b"", b"SHOW", b"\x82\xa3rid\x01\xa3job" + YEAR_10000],
    [b"", b"", b""],
    [b""],
    [b"x", b"y", b"z", b"w"],
    [],
]
"""Each of these broke a loop over messages once, or could."""


@pytest.mark.parametrize("junk", JUNK)
def test_junk_among_requests_costs_nobody_an_answer(junk: list[bytes]) -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        client, job = stage.client(), a_job()
        await client.submit(job)
        peer = client._link.identity
        show = encode(m.Show(9, job.id))
        dispatcher._requests.receive([(b"stranger", junk), (peer, junk), (peer, show)])
        answers = [await client._answers.get()]
        while (last := to_client.decode(answers[-1])).rid != 9:
            answers.append(await client._answers.get())
        assert isinstance(last, m.Ok)

    tell(story)


@pytest.mark.parametrize("junk", JUNK)
def test_junk_among_workers_messages_loses_no_report(junk: list[bytes]) -> None:
    """G3: the DONE that came in the same drain is recorded."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        peer, worker, attempt, job = await begun(stage, dispatcher)
        done = encode(m.Done(worker, (succeeded(*attempt),)))
        dispatcher._full.receive([(b"stranger", junk), (peer, junk), (peer, done)])
        (ended,) = await stage.client().wait(job, wait_s=1.0)
        assert ended.state is JobState.SUCCEEDED

    tell(story)


def test_a_report_that_breaks_its_handler_loses_none_of_its_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G3."""

    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        peer, worker, attempt, job = await begun(stage, dispatcher)
        report, bad = Ends.report, new_id()

        def broken(self: Ends, session: Session, one: m.Report) -> None:
            if one.job == bad:
                raise RuntimeError("nobody foresaw this")
            report(self, session, one)

        monkeypatch.setattr(Ends, "report", broken)
        done = encode(m.Done(worker, (succeeded(bad, 7), succeeded(*attempt))))
        dispatcher._full.receive([(peer, done)])
        (ended,) = await stage.client().wait(job, wait_s=1.0)
        assert ended.state is JobState.SUCCEEDED

    tell(story)


async def begun(
    stage: Stage, dispatcher: Dispatcher
) -> tuple[bytes, UUID, m.AttemptKey, Submission]:
    """A job that runs: its worker's peer and id, the attempt, and the job."""
    worker, job = await stage.worker(), a_job()
    await stage.client().submit(job)
    await stage.until(lambda: bool(worker.jobs.running))
    (attempt,) = worker.jobs.running
    (session,) = dispatcher._roster
    return session.peer, session.worker, attempt, job


def succeeded(job: UUID, token: int) -> m.Report:
    return SuccessReport(job, token, result=b"\x2a")


def test_an_answer_that_no_message_can_carry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would drop the connection, ask again, and never learn why."""
    monkeypatch.setattr(requests, "MAX_MESSAGE_BYTES", 100)

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        client, job = stage.client(), a_job()
        answer = await client.ask(m.Submit(1, (job,)))
        assert not isinstance(answer, m.Err)
        error = await client.ask(m.Show(2, job.id))
        assert isinstance(error, m.Err)
        assert error.code == TooLarge.code
        assert "the answer to SHOW takes" in error.message

    tell(story)


def test_a_flood_of_junk_is_counted_and_told_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        junk = DroppedMessages(VirtualClock(), "workers")
        error = ProtocolError("unknown verb b'X'\nforged line \x1b[31m")
        with caplog.at_level(logging.WARNING, "longshore.dispatcher"):
            for _ in range(10_000):
                junk.dropped(b"\x01", error)
            await asyncio.sleep(QUIET_S)
            junk.dropped(b"\x02", error)
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 2
        assert told[0].startswith("1 message was dropped, from workers; the last, from 01")
        assert told[1].startswith("10000 messages were dropped, from workers; the last")
        assert "\n" not in told[0]
        assert "\x1b" not in told[0]

    run_virtually(story())


def test_the_year_10000_is_what_a_decoder_refuses() -> None:
    """The bytes above are what they are meant to be: a timestamp that is no datetime."""
    with pytest.raises(ValueError, match="year"):
        msgspec.msgpack.decode(YEAR_10000, type=datetime)
