"""Outcomes are asked for together, and no longer than somebody waits for them. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from longshore.client.connection import Connection
from longshore.client.outcomes import Outcomes
from longshore.model.job import Ended, JobState
from longshore.testing.loopback import Network
from longshore.testing.virtual import run_virtually
from longshore.wire import codec, messages

ADDRESS = "loop://dispatcher"
ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))


class Asked:
    """Plays the dispatcher: keeps every WAIT until the story answers it."""

    def __init__(self, network: Network) -> None:
        self.waits: list[messages.Wait] = []
        self._peer = b""
        self._link = network.listen(ADDRESS, self._receive)

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for peer, frames in arrived:
            request = codec.from_client.decode(frames)
            assert isinstance(request, messages.Wait)
            self._peer = peer
            self.waits.append(request)

    @property
    def jobs(self) -> list[set[UUID]]:
        """Which jobs each request was for."""
        return [set(wait.jobs) for wait in self.waits]

    async def answer(self, wait: messages.Wait, *ended: UUID) -> None:
        """These have ended; the client has heard of it when this returns."""
        outcomes = [Ended(job, JobState.SUCCEEDED) for job in ended]
        self._link.send(self._peer, codec.ok(wait.rid, outcomes))
        await passing(0.1)


async def passing(virtual_s: float) -> None:
    """Lets virtual time pass."""
    await asyncio.sleep(virtual_s)


Story = Callable[[Outcomes, Asked], Awaitable[None]]


def tell(story: Story) -> None:
    async def main() -> None:
        network = Network()
        asked = Asked(network)
        # Nothing is sent again because of silence: only the story answers.
        async with Connection(
            ADDRESS, timeout_s=1e6, try_s=1e6, connect=network.connect
        ) as connection:
            await story(Outcomes(connection), asked)

    run_virtually(main())


def test_who_leaves_before_it_is_asked_asks_nothing() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        outcomes.release(ONE, outcomes.expect(ONE))
        await passing(10)
        assert asked.jobs == []

    tell(story)


def test_what_nobody_expects_any_more_is_not_asked_again() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        one = outcomes.expect(ONE, stored=False)
        two = outcomes.expect(TWO, stored=False)
        await passing(0.1)
        outcomes.release(ONE, one)
        await asked.answer(asked.waits[0])
        assert asked.jobs == [{ONE, TWO}, {TWO}]
        outcomes.release(TWO, two)
        await asked.answer(asked.waits[1])
        assert len(asked.jobs) == 2

    tell(story)


def test_what_is_asked_is_not_asked_a_second_time_meanwhile() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        first = outcomes.expect(ONE, stored=False)
        await passing(0.1)
        assert outcomes.expect(ONE) is first
        outcomes.expect(TWO, stored=False)
        await passing(0.1)
        assert asked.jobs == [{ONE}, {TWO}]
        await asked.answer(asked.waits[0], ONE)
        assert first.result().state is JobState.SUCCEEDED
        assert len(asked.jobs) == 2

    tell(story)


def test_what_an_answer_left_out_is_asked_with_the_next_request() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        expected = [outcomes.expect(job, stored=False) for job in (ONE, TWO, THREE)]
        await passing(0.1)
        await asked.answer(asked.waits[0], TWO)
        assert asked.jobs == [{ONE, TWO, THREE}, {ONE, THREE}]
        await asked.answer(asked.waits[1], ONE, THREE)
        assert all(one.done() for one in expected)
        assert len(asked.jobs) == 2

    tell(story)


def test_one_who_leaves_does_not_take_the_outcome_from_another() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        first, second = outcomes.expect(ONE, stored=False), outcomes.expect(ONE)
        await passing(0.1)
        outcomes.release(ONE, first)
        await asked.answer(asked.waits[0])
        await asked.answer(asked.waits[1], ONE)
        assert second.result().id == ONE

    tell(story)


def test_who_comes_back_while_it_is_still_asked_hears_the_answer() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        outcomes.release(ONE, outcomes.expect(ONE, stored=False))
        left = outcomes.expect(ONE, stored=False)
        await passing(0.1)
        outcomes.release(ONE, left)
        back = outcomes.expect(ONE, stored=False)
        await passing(0.1)
        assert asked.jobs == [{ONE}]
        await asked.answer(asked.waits[0], ONE)
        assert back.result().id == ONE
        assert not left.done()

    tell(story)


def test_a_wait_that_timed_out_leaves_nothing_behind() -> None:
    async def story(outcomes: Outcomes, asked: Asked) -> None:
        waiting = asyncio.create_task(outcomes.ended(ONE, 3.0, stored=False))
        await passing(3.1)
        await asked.answer(asked.waits[1])
        assert await waiting is None
        await asked.answer(asked.waits[0])
        assert [wait.wait_s for wait in asked.waits] == [5.0, 0.0]
        left = [*outcomes._expected, *outcomes._asked, *outcomes._unasked]
        assert left == []

    tell(story)
