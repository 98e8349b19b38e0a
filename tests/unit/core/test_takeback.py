"""What a new agent does with the attempts of one that died."""

from __future__ import annotations

from uuid import UUID

from longshore.core.takeback import AGENT_DIED, MOST_AGENTS, BegunAttempt, Takeback, take_back
from longshore.model.attempt import Assignment, HeldAttempt
from longshore.model.job import JobError, Reason
from longshore.model.reports import CrashReport, ReleaseReport
from longshore.model.worker import KindInfo, Pool, WorkerInfo

WORKER = WorkerInfo(
    id=UUID(int=1),
    kinds={
        "train": KindInfo(Pool.CONTAINER),
        "grind": KindInfo(Pool.PROCESS),
        "shrug": KindInfo(Pool.COMMAND, lost_free=True),
    },
    pools={Pool.CONTAINER: 2, Pool.PROCESS: 1, Pool.COMMAND: 2},
)


def begun(token: int, kind: str = "train", *, ended: bool = False) -> BegunAttempt:
    return BegunAttempt(UUID(int=token), token, kind, ended)


def held(token: int, agents: int = 2) -> HeldAttempt:
    return HeldAttempt(Assignment(UUID(int=token), token, token, "train", b""), 1.0, agents)


def crashed(token: int, words: str = AGENT_DIED) -> CrashReport:
    return CrashReport(UUID(int=token), token, JobError(Reason.CRASHED, words))


def released(token: int) -> ReleaseReport:
    return ReleaseReport(UUID(int=token), token)


def test_what_a_process_holds_is_resumed_and_nothing_is_said_of_it() -> None:
    assert take_back([begun(1)], [held(1)], WORKER) == Takeback(resumed=(held(1),))


def test_what_a_process_holds_is_resumed_even_if_its_end_was_told_to_the_old_agent() -> None:
    assert take_back([begun(1, ended=True)], [held(1)], WORKER) == Takeback(resumed=(held(1),))


def test_what_had_begun_and_is_nowhere_crashed() -> None:
    assert take_back([begun(1), begun(2)], [held(2)], WORKER) == Takeback(
        resumed=(held(2),), reports=(crashed(1),)
    )


def test_an_end_that_was_not_recorded_is_not_the_jobs_fault() -> None:
    assert take_back([begun(1, ended=True)], [], WORKER) == Takeback(reports=(released(1),))


def test_what_only_waited_for_a_slot_is_not_blamed() -> None:
    """The ended one had a slot before: it does not count."""
    old = [begun(1, "grind", ended=True), begun(2, "grind"), begun(3, "grind")]
    assert take_back(old, [], WORKER).reports == (released(1), crashed(2), released(3))


def test_kinds_whose_losses_are_free_stay_free() -> None:
    assert take_back([begun(1, "shrug")], [], WORKER).reports == (released(1),)


def test_a_kind_that_the_new_agent_does_not_know_is_blamed() -> None:
    assert take_back([begun(1, "gone")], [], WORKER).reports == (crashed(1),)


def test_an_attempt_that_outlived_too_many_agents_is_given_up_as_crashed() -> None:
    """Otherwise a job that kills its agent each time would never count as poisonous."""
    last, past = held(1, MOST_AGENTS), held(2, MOST_AGENTS + 1)
    words = f"{MOST_AGENTS} agents of its worker died while it ran"
    assert take_back([], [last, past], WORKER) == Takeback((last, past), (crashed(2, words),))
