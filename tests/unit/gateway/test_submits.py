"""Small requests that come together reach dispatchers together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from longshore.errors import StoreUnavailable
from longshore.gateway.submits import FEW_JOBS, Submits
from longshore.model.job import Submission
from longshore.testing.builders import new_id
from longshore.wire import messages
from longshore.wire.messages import SubmitAnswer

from .api import Api

JOBS = "/dispatcher/jobs/"


class Dispatcher:
    """Accepts jobs when it is let: what it was sent, message by message."""

    def __init__(self, api: Api) -> None:
        self.sent: list[messages.Submit] = []
        self._count = 0
        api.replies[messages.Submit] = self.accept

    def accept(self, request: messages.Submit) -> object:
        self.sent.append(request)
        numbered = []
        for job in request.jobs:
            self._count += 1
            numbered.append(SubmitAnswer(job.id, self._count))
        return tuple(numbered)

    @property
    def sizes(self) -> list[int]:
        """How many jobs each message had."""
        return [len(request.jobs) for request in self.sent]


def job(a: int, **more: Any) -> dict[str, Any]:
    return {"kind": "add", "args": {"a": a, "b": 0}, **more}


async def test_requests_that_come_together_are_one_message(api: Api) -> None:
    dispatcher = Dispatcher(api)
    await api.call("POST", JOBS, job(0))  # which learns what the kind's app declares
    replies = await asyncio.gather(*(api.call("POST", JOBS, job(n)) for n in range(30)))
    assert dispatcher.sizes == [1, 30]
    assert [one.status for one in replies] == [201] * 30
    [_, together] = dispatcher.sent
    numbers = {str(job.id): number for number, job in enumerate(together.jobs, start=2)}
    assert [one.json["number"] for one in replies] == [numbers[one.json["id"]] for one in replies]


async def test_strict_requests_and_others_are_not_mixed(api: Api) -> None:
    dispatcher = Dispatcher(api)
    await api.call("POST", JOBS, job(0))
    targets = [JOBS, f"{JOBS}?strict=true"] * 5
    await asyncio.gather(*(api.call("POST", target, job(1)) for target in targets))
    assert sorted((one.strict, len(one.jobs)) for one in dispatcher.sent[1:]) == [
        (False, 5),
        (True, 5),
    ]


async def test_a_large_request_goes_by_itself(api: Api) -> None:
    dispatcher = Dispatcher(api)
    await api.call("POST", JOBS, job(0))
    large = {"jobs": [job(n) for n in range(FEW_JOBS + 1)]}
    await asyncio.gather(api.call("POST", JOBS, large), api.call("POST", JOBS, job(1)))
    assert sorted(dispatcher.sizes[1:]) == [1, FEW_JOBS + 1]


async def test_a_job_that_is_refused_costs_its_neighbours_nothing(api: Api) -> None:
    def accept(request: messages.Submit) -> object:
        return tuple(
            SubmitAnswer(one.id, 0, False, "invalid_arguments", "a: no")
            if one.priority == 9
            else SubmitAnswer(one.id, 1)
            for one in request.jobs
        )

    api.replies[messages.Submit] = accept
    wanted = [job(1), job(2, priority=9), job(3)]
    replies = await asyncio.gather(*(api.call("POST", JOBS, one) for one in wanted))
    assert [one.status for one in replies] == [201, 400, 201]


async def test_all_hear_that_no_store_answers_and_later_requests_are_accepted(api: Api) -> None:
    api.replies[messages.Submit] = StoreUnavailable("down")
    replies = await asyncio.gather(*(api.call("POST", JOBS, job(n)) for n in range(5)))
    assert [one.status for one in replies] == [503] * 5
    dispatcher = Dispatcher(api)
    assert (await api.call("POST", JOBS, job(9))).status == 201
    assert dispatcher.sizes == [1]


async def test_all_hear_of_a_defect(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(api.connection, "submit", broken)
    submits = Submits(api.connection)
    waiting = [submits.submit((Submission(new_id(), "add", b"\x80"),), False) for _ in range(3)]
    async with asyncio.timeout(5):
        heard = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in heard] == [ZeroDivisionError] * 3


async def test_a_client_that_goes_away_leaves_the_others_their_answers(api: Api) -> None:
    dispatcher = Dispatcher(api)
    await api.call("POST", JOBS, job(0))
    leaves = asyncio.create_task(api.call("POST", JOBS, job(1)))
    stays = asyncio.create_task(api.call("POST", JOBS, job(2)))

    def accept(request: messages.Submit) -> object:
        leaves.cancel()
        return dispatcher.accept(request)

    api.replies[messages.Submit] = accept
    assert (await stays).status == 201
    assert leaves.cancelled()
    assert dispatcher.sizes == [1, 2]
