"""When a job is tried again, and whether.

Failures are counted apart: an attempt that raised or timed out uses up one of `retry.attempts`; a
worker that died under a job is a crash, counted against `crash_limit`; what Longshore itself took
back (a drain, a hand-back) costs nothing.
"""

from __future__ import annotations

from msgspec import structs

from longshore.model.job import Claimed, Finish, JobError, Outcome, Reason, RetryPolicy

FINAL_REASONS = frozenset(
    {Reason.INVALID_ARGUMENTS, Reason.INVALID_RESULT, Reason.POISONOUS, Reason.UNKNOWN_KIND}
)


def backoff_s(policy: RetryPolicy, failures: int, luck: float) -> float:
    """How long to wait before the retry that follows the n-th failure; `luck` is in [0, 1)."""
    exponent = min(failures - 1, 64)
    plain = min(policy.backoff_s * policy.factor**exponent, policy.max_backoff_s)
    return max(0.0, plain * (1 + policy.jitter * (2 * luck - 1)))


def settle_failure(
    attempt: Claimed, error: JobError, luck: float, *, final: bool = False, revoke: bool = False
) -> Finish:
    """An attempt that raised or timed out is tried again as its policy says, or the job fails."""
    failures = attempt.failures + 1
    policy = attempt.options.retry
    finish = Finish(
        attempt.id,
        attempt.token,
        Outcome.FAILED,
        error=error,
        revoke=revoke,
        info=summary(error),
    )
    if final or error.reason in FINAL_REASONS or failures >= policy.attempts:
        return finish
    delay_s = backoff_s(policy, failures, luck)
    return structs.replace(finish, outcome=Outcome.RETRIED, delay_s=delay_s)


def settle_crash(attempt: Claimed, error: JobError, crash_limit: int) -> Finish:
    """An attempt that took its process down is tried again until it is plainly poisonous."""
    if attempt.crashes + 1 < crash_limit:
        return Finish(
            attempt.id,
            attempt.token,
            Outcome.RELEASED,
            error=error,
            crash=True,
            revoke=True,
            info=summary(error),
        )
    poisonous = structs.replace(
        error,
        reason=Reason.POISONOUS,
        message=f"crashed {attempt.crashes + 1} times and was given up; last: {error.message}",
    )
    return Finish(
        attempt.id,
        attempt.token,
        Outcome.FAILED,
        error=poisonous,
        crash=True,
        revoke=True,
        info=summary(poisonous),
    )


def summary(error: JobError, limit: int = 200) -> str:
    """An error in one line, for a history entry."""
    first_line = error.message.split("\n", 1)[0]
    text = f"{error.type}: {first_line}" if error.type else first_line
    return text if len(text) <= limit else text[: limit - 1] + "…"
