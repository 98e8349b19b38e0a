"""A connection repeats what is not answered, elsewhere if need be, until its time is up."""

from __future__ import annotations

import asyncio
import itertools
import re
from uuid import UUID

import pytest

from longshore.client.connection import Connection, parse_addresses, wire_size
from longshore.errors import (
    ConfigError,
    Conflict,
    DispatcherUnavailable,
    InvalidInput,
    NotFound,
    ProtocolError,
    StoreUnavailable,
)
from longshore.model.group import RetryPlan
from longshore.model.job import Ended, JobPage, JobState, Submission
from longshore.testing.loopback import Network
from longshore.testing.virtual import run_virtually
from longshore.wire import codec, messages
from longshore.wire.portions import portions

from .fake import NOW, SILENT, FakeDispatcher

NOBODY = "tcp://127.0.0.1:1"


def jobs(count: int, args: bytes = b"\x80") -> tuple[Submission, ...]:
    return tuple(Submission(UUID(int=number), "add", args) for number in range(1, count + 1))


async def test_a_request_without_an_answer_is_sent_again_with_the_same_ids(
    fake: FakeDispatcher,
) -> None:
    tries = itertools.count()
    fake.replies[messages.Submit] = lambda request: (
        SILENT if next(tries) < 2 else [messages.SubmitAnswer(job.id, 7) for job in request.jobs]
    )
    async with Connection(fake.address, try_s=0.05) as connection:
        answers = await connection.submit(jobs(1))
    assert answers == (messages.SubmitAnswer(UUID(int=1), 7),)
    first, second, third = fake.of(messages.Submit)
    assert first == second == third


def held(job: Submission) -> messages.SubmitAnswer:
    """What a dispatcher says of a unique key that a group has which is not whole yet."""
    return messages.SubmitAnswer(job.id, code="unavailable", message="try again")


async def test_a_job_that_may_be_accepted_later_is_submitted_again(fake: FakeDispatcher) -> None:
    """The others of its message are not."""
    tries = itertools.count()

    def reply(request: messages.Submit) -> list[messages.SubmitAnswer]:
        is_held = next(tries) < 2
        return [
            held(job) if is_held and job.id.int == 2 else messages.SubmitAnswer(job.id, job.id.int)
            for job in request.jobs
        ]

    fake.replies[messages.Submit] = reply
    async with Connection(fake.address, pause_s=0.0) as connection:
        answers = await connection.submit(jobs(3))
    assert [(answer.number, answer.code) for answer in answers] == [(1, ""), (2, ""), (3, "")]
    sent = [[job.id.int for job in one.jobs] for one in fake.of(messages.Submit)]
    assert sent == [[1, 2, 3], [2], [2]]


async def test_a_job_that_is_never_accepted_is_answered_when_the_time_is_up(
    fake: FakeDispatcher,
) -> None:
    fake.replies[messages.Submit] = lambda request: [held(job) for job in request.jobs]
    async with Connection(fake.address, pause_s=0.01, timeout_s=0.05) as connection:
        [answer] = await connection.submit(jobs(1))
    assert (answer.code, answer.message) == ("unavailable", "try again")
    assert len(fake.of(messages.Submit)) > 1


async def test_a_silent_dispatcher_is_left_for_the_next_address(fake: FakeDispatcher) -> None:
    with FakeDispatcher() as silent:
        silent.fall_silent()
        async with Connection([silent.address, fake.address], try_s=0.05) as connection:
            answers = await connection.submit(jobs(1))
            assert (await connection.hello()).version == "fake"
    assert [answer.id for answer in answers] == [UUID(int=1)]
    assert silent.of(messages.Submit) == fake.of(messages.Submit)
    assert not silent.of(messages.Hello)


def test_a_dispatcher_that_talks_is_not_left_for_one_answer_that_is_missing() -> None:
    """What it did not answer it is asked again. On virtual time."""
    heard: list[tuple[str, type]] = []

    def listen(network: Network, address: str) -> None:
        def receive(arrived: list[tuple[bytes, list[bytes]]]) -> None:
            for peer, frames in arrived:
                request = codec.from_client.decode(frames)
                heard.append((address, type(request)))
                if heard != [(address, messages.Pause)]:
                    answer = None if isinstance(request, messages.Pause) else ()
                    link.send(peer, codec.ok(request.rid, answer))

        link = network.listen(address, receive)

    async def story() -> None:
        network, addresses = Network(), ["loop://a", "loop://b"]
        for address in addresses:
            listen(network, address)
        async with Connection(addresses, connect=network.connect, try_s=2.5) as connection:
            pausing = asyncio.create_task(connection.pause("mail"))
            await asyncio.sleep(connection._try_s / 2)
            await connection.queues()
            await pausing

    run_virtually(story())
    asked = [messages.Pause, messages.ListQueues, messages.Pause]
    assert heard == [("loop://a", request) for request in asked]


def test_the_retry_of_a_large_group_may_take_longer_than_an_answer_usually_does() -> None:
    """It is asked once: a dispatcher that opens 100,000 jobs again is not silent. Virtual time."""
    asked: list[messages.RetryGroup] = []
    plan = RetryPlan(UUID(int=7), ("a",), more=99_999)

    async def story() -> None:
        network = Network()

        def receive(arrived: list[tuple[bytes, list[bytes]]]) -> None:
            for peer, frames in arrived:
                request = codec.from_client.decode(frames)
                assert isinstance(request, messages.RetryGroup)
                asked.append(request)
                answer = codec.ok(request.rid, plan)
                asyncio.get_running_loop().call_later(25.0, link.send, peer, answer)

        link = network.listen("loop://a", receive)
        network.listen("loop://b", receive)
        both = ["loop://a", "loop://b"]
        async with Connection(both, connect=network.connect, timeout_s=10.0) as connection:
            assert await connection.retry_group(7) == plan

    run_virtually(story())
    assert len(asked) == 1


async def test_all_requests_under_way_move_to_the_next_address_together(
    fake: FakeDispatcher,
) -> None:
    with FakeDispatcher() as silent:
        silent.fall_silent()
        addresses = [silent.address, fake.address]
        async with Connection(addresses, try_s=0.2, wait_slice_s=60) as connection:
            waiting = asyncio.create_task(connection.wait([UUID(int=1)], 60))
            await connection.submit(jobs(1))
            await asyncio.to_thread(fake.heard, messages.Wait)
            fake.end(UUID(int=1))
            assert (await waiting)[0].state is JobState.SUCCEEDED


async def test_nobody_answering_anywhere_is_said_with_the_addresses_and_what_to_do() -> None:
    async with Connection(f"{NOBODY}, tcp://127.0.0.1:2", timeout_s=0.1) as connection:
        with pytest.raises(DispatcherUnavailable) as raised:
            await connection.hello()
    assert "no dispatcher answers at tcp://127.0.0.1:1, tcp://127.0.0.1:2" in str(raised.value)
    assert "is `longshore up` running?" in str(raised.value)


async def test_a_request_that_was_given_up_is_never_delivered() -> None:
    with FakeDispatcher() as gone:
        address = gone.address
    async with Connection(address, timeout_s=0.1) as connection:
        with pytest.raises(DispatcherUnavailable):
            await connection.pause("default")
        with FakeDispatcher(address) as back:
            await connection.hello()
            assert not back.of(messages.Pause)


async def test_a_late_answer_of_a_dispatcher_that_was_left_counts(fake: FakeDispatcher) -> None:
    with FakeDispatcher() as silent:
        silent.fall_silent()

        def answer_late(request: messages.Hello) -> object:
            silent.heard(messages.Hello)
            return messages.HelloAnswer(1, "slow", UUID(int=2), NOW)

        fake.replies[messages.Hello] = answer_late
        async with Connection([fake.address, silent.address], try_s=0.2) as connection:
            assert (await connection.hello()).version == "slow"


@pytest.mark.parametrize("error", [NotFound("there is no job 7"), Conflict("another body")])
async def test_a_refusal_is_raised_as_the_error_its_code_names(
    fake: FakeDispatcher, error: NotFound | Conflict
) -> None:
    fake.replies[messages.Show] = lambda request: error
    async with Connection(fake.address) as connection:
        with pytest.raises(type(error), match=str(error)):
            await connection.job(7)
    assert len(fake.of(messages.Show)) == 1


async def test_a_dispatcher_cut_off_from_its_store_is_left_for_another(
    fake: FakeDispatcher,
) -> None:
    with FakeDispatcher() as cut_off:
        cut_off.replies[messages.Submit] = lambda request: StoreUnavailable("the store is away")
        addresses = [cut_off.address, fake.address]
        async with Connection(addresses, pause_s=0.01) as connection:
            assert await connection.submit(jobs(1)) == (messages.SubmitAnswer(UUID(int=1), 1),)


async def test_an_outage_longer_than_the_time_allowed_is_raised_as_what_was_said(
    fake: FakeDispatcher,
) -> None:
    fake.replies[messages.Hello] = lambda request: StoreUnavailable("the store is away")
    async with Connection(fake.address, timeout_s=0.1, pause_s=0.01) as connection:
        with pytest.raises(StoreUnavailable, match="the store is away"):
            await connection.hello()
    assert len(fake.of(messages.Hello)) > 1


async def test_a_dispatcher_that_answers_others_is_not_said_to_be_away(
    fake: FakeDispatcher,
) -> None:
    fake.replies[messages.Submit] = lambda request: SILENT
    async with Connection(fake.address, timeout_s=0.3, try_s=0.05) as connection:
        submitting = asyncio.create_task(connection.submit(jobs(1)))
        await asyncio.to_thread(fake.heard, messages.Submit)
        await connection.hello()
        with pytest.raises(DispatcherUnavailable, match="although a dispatcher is there"):
            await submitting


async def test_a_refused_wait_does_not_take_its_own_time_for_the_outage(
    fake: FakeDispatcher,
) -> None:
    fake.replies[messages.Wait] = lambda request: StoreUnavailable("the store is away")
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with Connection(fake.address, timeout_s=0.05, wait_slice_s=60) as connection:
        with pytest.raises(StoreUnavailable):
            await connection.wait([UUID(int=1)], 60)
    assert loop.time() - begun < 30


async def test_requests_share_one_socket_and_their_answers_find_them(fake: FakeDispatcher) -> None:
    fake.replies[messages.Why] = lambda request: messages.WhyAnswer(
        UUID(int=request.job), request.job, "ready", f"because of {request.job}"
    )
    async with Connection(fake.address) as connection:
        answers = await asyncio.gather(*(connection.why(number) for number in range(100)))
    assert [answer.why for answer in answers] == [f"because of {n}" for n in range(100)]
    assert len(set(fake.peers)) == 1


async def test_no_jobs_are_waited_for_without_a_word(fake: FakeDispatcher) -> None:
    async with Connection(fake.address) as connection:
        assert await connection.wait([], 60) == ()
    assert fake.requests == []


def test_chunks_keep_to_their_bytes() -> None:
    sizes = [len(chunk) for chunk in portions(jobs(10, bytes(1000)), wire_size, 4_700)]
    assert sizes == [3, 3, 3, 1]


async def test_an_answer_that_leaves_jobs_out_is_an_error(fake: FakeDispatcher) -> None:
    fake.replies[messages.Submit] = lambda request: []
    async with Connection(fake.address) as connection:
        with pytest.raises(ProtocolError, match="1 jobs were submitted, 0 were answered"):
            await connection.submit(jobs(1))


async def test_a_time_that_is_no_number_is_refused_and_nothing_is_sent(
    fake: FakeDispatcher,
) -> None:
    async with Connection(fake.address, timeout_s=0.05) as connection:
        with pytest.raises(InvalidInput, match="not a number"):
            await connection.relay(messages.ListDispatchers(1), float("nan"))
    assert fake.of(messages.ListDispatchers) == []


async def test_wait_answers_nothing_when_its_time_is_up(fake: FakeDispatcher) -> None:
    async with Connection(fake.address, wait_slice_s=0.02) as connection:
        assert await connection.wait([UUID(int=1)], 0.05) == ()
    assert len(fake.of(messages.Wait)) >= 2


async def test_wait_for_every_job_collects_them_over_several_answers(fake: FakeDispatcher) -> None:
    ids = [UUID(int=number) for number in (1, 2)]
    async with Connection(fake.address, wait_slice_s=0.05) as connection:
        waiting = asyncio.create_task(connection.wait(ids, 60, every=True))
        fake.end(ids[1])
        await asyncio.to_thread(fake.heard, messages.Wait, 2)
        fake.end(ids[0])
        ended = await waiting
    assert set(ended) == {Ended(id, JobState.SUCCEEDED) for id in ids}


async def test_pause_and_lists_are_asked_for_as_given(fake: FakeDispatcher) -> None:
    async with Connection(fake.address) as connection:
        await connection.pause("mail", paused=False)
        assert await connection.jobs() == JobPage()
        assert await connection.workers() == ()
        assert await connection.queues() == ()
    assert fake.of(messages.Pause)[0].queue == "mail"
    assert fake.of(messages.Pause)[0].paused is False


async def test_closing_ends_what_waits(fake: FakeDispatcher) -> None:
    fake.fall_silent()
    connection = Connection(fake.address)
    waiting = asyncio.create_task(connection.hello())
    await asyncio.to_thread(fake.heard, messages.Hello)
    connection.close()
    with pytest.raises(DispatcherUnavailable, match="closed"):
        await waiting
    with pytest.raises(DispatcherUnavailable, match="closed"):
        await connection.hello()


@pytest.mark.parametrize("text", ["", " , ", "127.0.0.1:7702"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("tcp://127.0.0.1:7702")):
        parse_addresses(text)


async def test_an_address_that_cannot_be_connected_to_is_refused_when_its_turn_comes(
    fake: FakeDispatcher,
) -> None:
    fake.fall_silent()
    async with Connection([fake.address, "tcp://nowhere"], try_s=0.05) as connection:
        with pytest.raises(ConfigError, match="nowhere"):
            await connection.hello()
