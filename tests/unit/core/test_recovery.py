"""Which ends of a turn lead to a recovery."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.recovery import is_recovery, of_lost_turn, recovering
from longshore.model.attempt import Attempt
from longshore.model.ends import Cancelled, Crashed, End, Failed, Released, Retried
from longshore.model.job import JobState, Options, Reason, RetryPolicy
from longshore.testing.builders import RAISED, new_id

TURN = Attempt(
    new_id(),
    1,
    7,
    "Till@1",
    b"",
    Options(turn=True, retry=RetryPolicy(attempts=3)),
    new_id(),
    1,
    1,
    0,
    0,
)


def a_turn(failures: int) -> Attempt:
    return structs.replace(TURN, failures=failures)


FAILED = Failed(TURN.id, TURN.token, RAISED, info="it failed")
POISONOUS = Crashed(TURN.id, TURN.token, RAISED, crashes=2, limit=3)


@pytest.mark.parametrize("end", [FAILED, POISONOUS])
@pytest.mark.parametrize(("failures", "events", "more"), [(2, 1, 2), (0, 1, 4), (0, 5, 3)])
def test_what_failed_for_good_goes_on_alone_and_then_to_recover(
    end: End, failures: int, events: int, more: int
) -> None:
    found = recovering(a_turn(failures), end, events)
    assert isinstance(found, Retried)
    assert (found.failures, found.delay_s, found.error) == (more, 0.0, RAISED)
    after = a_turn(failures + more)
    assert is_recovery(after) is (events == 1)
    assert recovering(after, end, 1) != end or is_recovery(after)


@pytest.mark.parametrize(
    "end",
    [
        Retried(TURN.id, TURN.token, RAISED),
        Released(TURN.id, TURN.token),
        Cancelled(TURN.id, TURN.token),
        structs.replace(POISONOUS, crashes=1),
    ],
)
def test_other_ends_stay_as_they_are(end: End) -> None:
    assert recovering(a_turn(0), end, 1) is end


def test_recovery_that_fails_and_a_turn_without_events_have_failed() -> None:
    assert recovering(a_turn(4), FAILED, 1) is FAILED
    assert recovering(a_turn(0), FAILED, 0) is FAILED
    assert recovering(a_turn(3), FAILED, 5) is FAILED


def test_a_job_is_no_recovery_however_often_it_failed() -> None:
    options = structs.replace(TURN.options, turn=False)
    assert not is_recovery(structs.replace(TURN, options=options, failures=9))


@pytest.mark.parametrize(
    ("failures", "crashes", "more"),
    [(0, 0, 3), (0, 2, 4), (1, 0, 3), (3, 1, 1)],
)
def test_an_end_that_no_worker_reports_leads_to_a_recovery_too(
    failures: int, crashes: int, more: int
) -> None:
    """How many events the turn had is not known, but it had one if it failed or crashed before."""
    turn = structs.replace(TURN, failures=failures, crashes=crashes)
    found = recovering(turn, structs.replace(FAILED, forced=True))
    assert isinstance(found, Retried)
    assert (found.failures, found.forced) == (more, True)
    lost = of_lost_turn(failures, crashes, 3, crashes + 1, "gone")[JobState.RUNNING]
    assert (lost.state, lost.failures, lost.crashes) == (JobState.READY, more, 1)
    assert lost.error is not None
    assert (lost.error.reason, lost.new_token) == (Reason.POISONOUS, True)


def test_a_lost_turn_is_given_up_only_after_its_recovery() -> None:
    before = of_lost_turn(0, 1, 3, 3, "gone")[JobState.RUNNING]
    assert (before.state, before.failures, before.crashes) == (JobState.READY, 0, 1)
    after = of_lost_turn(4, 3, 3, 3, "gone")[JobState.RUNNING]
    assert after.state is JobState.FAILED
    cancelled = of_lost_turn(0, 2, 3, 3, "gone")[JobState.CANCELLING]
    assert cancelled.state is JobState.CANCELLED
