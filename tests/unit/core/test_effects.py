"""What each event does to a job's row: the one place that decides it for every store."""

from __future__ import annotations

from math import inf, nan
from uuid import UUID

import pytest

from longshore.core import effects
from longshore.core.effects import Change
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.ends import (
    Cancelled,
    Crashed,
    End,
    Failed,
    NotBegun,
    Released,
    Retried,
    Skipped,
    Snoozed,
    Succeeded,
)
from longshore.model.job import (
    CancelVerdict,
    Ended,
    JobError,
    JobState,
    Reason,
    RetryVerdict,
    Verdict,
)

S = JobState
JOB, OWNER = UUID(int=1), UUID(int=2)
RAISED = JobError(Reason.RAISED, "no route to host", "ConnectionError")
SIGNAL = JobError(Reason.CRASHED, "killed by signal 11 (SIGSEGV)")
GIVEN_UP = JobError(Reason.POISONOUS, f"crashed 3 times and was given up; last: {SIGNAL.message}")

ENDS: list[tuple[End, Change, Change]] = [
    (Succeeded(JOB, 7, b"1"), Change(S.SUCCEEDED), Change(S.SUCCEEDED)),
    (
        Failed(JOB, 7, RAISED, info="no"),
        Change(S.FAILED, failures=1, error=RAISED, info="no"),
        Change(S.CANCELLED, failures=1, info="no"),
    ),
    (
        Failed(JOB, 7, RAISED, forced=True),
        Change(S.FAILED, new_token=True, failures=1, error=RAISED),
        Change(S.CANCELLED, new_token=True, failures=1),
    ),
    (
        Retried(JOB, 7, RAISED, 5.0),
        Change(S.DELAYED, failures=1, error=RAISED, delay_s=5.0),
        Change(S.CANCELLED, failures=1),
    ),
    (
        Snoozed(JOB, 7, 5.0),
        Change(S.DELAYED, keeps_error=True, delay_s=5.0),
        Change(S.CANCELLED),
    ),
    (
        Released(JOB, 7),
        Change(S.READY, new_token=True, keeps_error=True),
        Change(S.CANCELLED, new_token=True),
    ),
    (Skipped(JOB, 7, info="why"), Change(S.SKIPPED, info="why"), Change(S.CANCELLED, info="why")),
    (Cancelled(JOB, 7), Change(S.CANCELLED), Change(S.CANCELLED)),
    (
        Cancelled(JOB, 7, forced=True),
        Change(S.CANCELLED, new_token=True),
        Change(S.CANCELLED, new_token=True),
    ),
    (
        Crashed(JOB, 7, SIGNAL, 1, 3),
        Change(S.READY, new_token=True, crashes=1, keeps_error=True, info=SIGNAL.message),
        Change(S.CANCELLED, new_token=True, info=SIGNAL.message),
    ),
    (
        Crashed(JOB, 7, SIGNAL, 2, 3),
        Change(S.FAILED, new_token=True, crashes=1, error=GIVEN_UP, info=GIVEN_UP.message),
        Change(S.CANCELLED, new_token=True, info=GIVEN_UP.message),
    ),
]


@pytest.mark.parametrize(("end", "running", "cancelling"), ENDS)
def test_what_an_end_does_to_a_running_job_and_to_one_that_is_being_cancelled(
    end: End, running: Change, cancelling: Change
) -> None:
    assert effects.of_end(end) == {S.RUNNING: running, S.CANCELLING: cancelling}


@pytest.mark.parametrize("end", [end for end, _, _ in ENDS if not isinstance(end, Succeeded)])
def test_while_cancelling_anything_but_success_is_cancelled_without_an_error(end: End) -> None:
    change = effects.of_end(end)[S.CANCELLING]
    assert (change.state, change.error, change.keeps_error) == (S.CANCELLED, None, False)


@pytest.mark.parametrize(
    ("asked_s", "delay_s"), [(-5.0, 0.0), (nan, 0.0), (inf, effects.FARTHEST_S)]
)
def test_every_delay_leads_to_a_time(asked_s: float, delay_s: float) -> None:
    for end in (Snoozed(JOB, 7, asked_s), Retried(JOB, 7, RAISED, asked_s)):
        assert effects.of_end(end)[S.RUNNING].delay_s == delay_s


def test_who_waits_for_a_job_hears_what_its_row_says() -> None:
    for end, change, _ in ENDS:
        heard = effects.outcome(end.job, change, end)
        result = b"1" if change.state is S.SUCCEEDED else None
        assert heard == Ended(JOB, change.state, result, change.error)


def test_an_ended_job_names_who_ran_it_and_a_ready_one_nobody() -> None:
    for state in JobState:
        assert Change(state).keeps_owner == (state in TERMINAL | OWNED)


@pytest.mark.parametrize("state", sorted(JobState))
def test_only_the_owners_token_counts_and_only_once(state: JobState) -> None:
    """G2 and G3, as the stores must do it."""
    mine, stale = Succeeded(JOB, 7), Succeeded(JOB, 6)
    assert effects.judge(state, 7, OWNER, stale) is Verdict.STALE
    expected = Verdict.RECORDED if state in OWNED else Verdict.ALREADY_RECORDED
    assert effects.judge(state, 7, OWNER, mine) is expected


@pytest.mark.parametrize("state", sorted(JobState))
def test_a_workers_word_counts_only_for_its_own_jobs(state: JobState) -> None:
    """A worker could guess a token."""
    own, anothers = (Succeeded(JOB, 7, worker=one) for one in (OWNER, UUID(int=9)))
    ended = Verdict.ALREADY_RECORDED
    owned = state in OWNED
    assert effects.judge(state, 7, OWNER, own) is (Verdict.RECORDED if owned else ended)
    assert effects.judge(state, 7, OWNER, anothers) is (Verdict.STALE if owned else ended)


def test_a_loss_that_is_no_crash_costs_nothing() -> None:
    assert effects.of_loss(2, None, "goodbye") == {
        S.RUNNING: Change(S.READY, new_token=True, keeps_error=True, info="goodbye"),
        S.CANCELLING: Change(S.CANCELLED, new_token=True, info="goodbye"),
    }


def test_a_lost_worker_is_a_crash_of_the_jobs_that_ran_and_the_last_is_poisonous() -> None:
    again, last = (effects.of_loss(crashes, 3, "silent") for crashes in (1, 2))
    assert again[S.RUNNING].state is S.READY
    assert (again[S.RUNNING].crashes, again[S.CANCELLING].crashes) == (1, 0)
    message = "crashed 3 times and was given up; last: silent"
    assert last[S.RUNNING].state is S.FAILED
    assert last[S.RUNNING].error == JobError(Reason.POISONOUS, message)
    assert last[S.CANCELLING] == again[S.CANCELLING]


def test_a_cancel_takes_the_token_of_a_job_that_nobody_owns_and_leaves_an_owner_its_own() -> None:
    verdicts = {state: effects.cancel_verdict(state) for state in JobState}
    for state in (S.WAITING, S.DELAYED, S.READY):
        assert effects.CANCEL[state] == Change(S.CANCELLED, new_token=True, keeps_error=True)
        assert verdicts.pop(state) is CancelVerdict.CANCELLED
    assert effects.CANCEL[S.RUNNING] == Change(S.CANCELLING, keeps_error=True)
    assert S.CANCELLING not in effects.CANCEL
    for state in OWNED:
        assert verdicts.pop(state) is CancelVerdict.CANCELLING
    assert set(verdicts.values()) == {CancelVerdict.ALREADY_ENDED}


def test_a_retry_opens_a_new_round_of_what_ended_without_success() -> None:
    reopened = Change(S.READY, new_token=True, new_round=True, info="round 3, retried by me")
    effect = effects.of_retry(2, "me")
    assert effect == dict.fromkeys(TERMINAL - {S.SUCCEEDED}, reopened)
    for state in JobState:
        verdict = effects.retry_verdict(state, key_is_taken=False)
        assert (verdict is RetryVerdict.RETRIED) == (state in effect)
    assert effects.retry_verdict(S.FAILED, key_is_taken=True) is RetryVerdict.UNIQUE_KEY_TAKEN
    assert effects.retry_verdict(S.READY, key_is_taken=True) is RetryVerdict.NOT_ENDED
    assert effects.retry_verdict(S.SUCCEEDED, key_is_taken=True) is RetryVerdict.SUCCEEDED


def test_a_job_that_comes_due_is_ready_and_nothing_else_changes() -> None:
    due = Change(S.READY, keeps_error=True, keeps_deadline=True)
    assert {S.DELAYED: due} == effects.DUE


def test_only_a_ready_job_expires_and_then_it_has_failed() -> None:
    message = "expired: no worker began it within 1 min 30 s"
    error = JobError(Reason.EXPIRED, message)
    assert effects.of_expiry(90) == {S.READY: Change(S.FAILED, error=error, info=message)}


def test_a_deadline_outlives_only_attempts_that_never_began() -> None:
    not_begun = effects.of_end(NotBegun(JOB, 7))
    assert not_begun[S.RUNNING].keeps_deadline
    assert not not_begun[S.CANCELLING].keeps_deadline
    assert not any(effects.of_end(end)[S.RUNNING].keeps_deadline for end, _, _ in ENDS)
    assert not effects.of_loss(0, None, "gone")[S.RUNNING].keeps_deadline
    assert effects.of_retry(1, "me", expires_s=5)[S.FAILED].deadline_s == 5
