"""Retry, backoff and crashes: what each failure costs."""

from math import inf, nan
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from longshore.core.limits import MAX_ATTEMPTS, MAX_DURATION_S, MAX_SNOOZE_S
from longshore.core.timing import (
    backoff_s,
    settle_crash,
    settle_failure,
    settle_refused_retry,
    settle_snooze,
    summary,
)
from longshore.model.attempt import Attempt
from longshore.model.ends import Crashed, Failed, Retried, Snoozed
from longshore.model.job import JobError, Options, Reason, RetryPolicy

JOB, WORKER = UUID(int=1), UUID(int=2)
RAISED = JobError(Reason.RAISED, "no route to host", "ConnectionError")


def attempt(*, attempts: int = 3, failures: int = 0, crashes: int = 0) -> Attempt:
    options = Options(retry=RetryPolicy(attempts=attempts, jitter=0))
    return Attempt(JOB, 1, 9, "fetch", b"\x80", options, WORKER, 1, 1, failures, crashes)


def test_backoff_doubles_up_to_its_bound() -> None:
    policy = RetryPolicy(backoff_s=1, factor=2, max_backoff_s=5, jitter=0)
    assert [backoff_s(policy, n, 0.5) for n in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]


@given(st.integers(1, 10_000), st.floats(0, 0.999), st.floats(0, 1))
def test_jitter_stays_within_its_share(failures: int, luck: float, jitter: float) -> None:
    policy = RetryPolicy(backoff_s=2, factor=1, jitter=jitter)
    assert 2 * (1 - jitter) - 1e-9 <= backoff_s(policy, failures, luck) <= 2 * (1 + jitter) + 1e-9


def test_a_failure_is_retried_while_attempts_are_left() -> None:
    finish = settle_failure(attempt(failures=0), RAISED, 0.5)
    assert finish == Retried(JOB, 9, RAISED, 1.0, info=summary(RAISED))
    again = settle_failure(attempt(failures=1), RAISED, 0.5)
    assert again == Retried(JOB, 9, RAISED, 2.0, info=summary(RAISED))


def test_the_last_attempts_failure_fails_the_job() -> None:
    finish = settle_failure(attempt(failures=2), RAISED, 0.5)
    assert finish == Failed(JOB, 9, RAISED, info=summary(RAISED))


@pytest.mark.parametrize(
    ("attempts", "had"),
    [
        (1, "it was given none"),
        (2, "its retries (1) are used up"),
        (3, "its retries (2) are used up"),
    ],
)
def test_a_retry_that_was_asked_for_in_vain_says_so(attempts: int, had: str) -> None:
    later = JobError(Reason.RAISED, "later", "longshore.Retry", "Traceback …")
    finish = settle_refused_retry(attempt(attempts=attempts, failures=attempts - 1), later)
    said = f"later (it asked for a retry, but {had}; give it more with @app.job(retries=…))"
    assert isinstance(finish, Failed)
    assert finish.error == structs.replace(later, message=said)
    assert finish.info == f"longshore.Retry: {said}"


@pytest.mark.parametrize(
    "reason",
    [Reason.INVALID_ARGUMENTS, Reason.INVALID_RESULT, Reason.POISONOUS, Reason.UNKNOWN_KIND],
)
def test_what_no_retry_can_mend_is_not_retried(reason: Reason) -> None:
    assert isinstance(settle_failure(attempt(), JobError(reason, "it will not do"), 0.5), Failed)


@pytest.mark.parametrize("reason", [Reason.RAISED, Reason.TIMED_OUT])
def test_what_a_retry_may_mend_is_retried(reason: Reason) -> None:
    finish = settle_failure(attempt(), JobError(reason, "it did not do"), 0.5)
    assert isinstance(finish, Retried)
    assert finish.delay_s == 1.0


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(backoff_s=1, factor=1e308, max_backoff_s=5),
        RetryPolicy(backoff_s=1e308, factor=1e308, max_backoff_s=5),
        RetryPolicy(backoff_s=inf, factor=2, max_backoff_s=5),
        RetryPolicy(backoff_s=nan, factor=nan, max_backoff_s=nan, jitter=nan),
        RetryPolicy(backoff_s=0, factor=inf, max_backoff_s=inf, jitter=inf),
    ],
)
def test_any_policy_makes_a_backoff(policy: RetryPolicy) -> None:
    """A worker may submit it in an outbox, where no client checks it."""
    for failures in (1, 2, 100):
        assert 0 <= backoff_s(policy, failures, 0.3) <= MAX_DURATION_S


@pytest.mark.parametrize(
    ("asked_s", "delay_s"),
    [(90.0, 90.0), (-5.0, 0.0), (nan, 0.0), (inf, MAX_SNOOZE_S), (1e308, MAX_SNOOZE_S)],
)
def test_a_retry_that_was_asked_for_is_no_later_than_a_snooze(
    asked_s: float, delay_s: float
) -> None:
    finish = settle_failure(attempt(), RAISED, 0.5, after_s=asked_s)
    assert isinstance(finish, Retried)
    assert finish.delay_s == delay_s


def test_a_snooze_costs_nothing_and_says_for_how_long() -> None:
    finish = settle_snooze(attempt(attempts=1, failures=2), 90.0, "not yet\nsecond line")
    assert finish == Snoozed(JOB, 9, 90.0, info="snoozed for 1 min 30 s: not yet")
    assert settle_snooze(attempt(), 0.0, "").info == "snoozed for 0 ms"


@pytest.mark.parametrize(
    ("asked_s", "delay_s"), [(-5.0, 0.0), (nan, 0.0), (inf, MAX_SNOOZE_S), (1e300, MAX_SNOOZE_S)]
)
def test_a_snooze_is_never_longer_than_its_limit(asked_s: float, delay_s: float) -> None:
    finish = settle_snooze(attempt(), asked_s, "")
    assert isinstance(finish, Snoozed)
    assert finish.delay_s == delay_s


def test_a_job_that_snoozes_without_end_is_given_up() -> None:
    last = structs.replace(attempt(), attempt=MAX_ATTEMPTS)
    finish = settle_snooze(last, 1.0, "")
    assert isinstance(finish, Failed)
    assert "1,000,000th time" in finish.error.message


def test_a_job_that_asks_for_no_retry_gets_none() -> None:
    assert isinstance(settle_failure(attempt(), RAISED, 0.5, final=True), Failed)


def test_a_crash_tells_how_many_there_were_before() -> None:
    crashed = JobError(Reason.CRASHED, "killed by signal 11 (SIGSEGV)")
    finish = settle_crash(attempt(attempts=1, crashes=2), crashed, crash_limit=3)
    assert finish == Crashed(JOB, 9, crashed, crashes=2, limit=3)


def test_a_summary_is_one_bounded_line() -> None:
    assert summary(RAISED) == "ConnectionError: no route to host"
    assert summary(JobError(Reason.RAISED, "a" * 500)) == "a" * 199 + "…"
    assert summary(JobError(Reason.RAISED, "first\nsecond")) == "first"
