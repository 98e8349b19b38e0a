"""Whether a job is tried again, and when.

An attempt that raised or timed out uses up one of `retry.attempts`. A worker that dies while it
runs a job is a crash, and counts against `crash_limit`. What Longshore itself took back (a drain, a
hand-back) costs nothing. Nor does a job that asks to run later (a snooze), until it has started
`MAX_ATTEMPTS` times.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from longshore.core.limits import MAX_ATTEMPTS, MAX_DURATION_S, MAX_SNOOZE_S
from longshore.model.attempt import Attempt, AttemptKey
from longshore.model.ends import Crashed, Failed, Retried, Skipped, Snoozed
from longshore.model.job import JobError, Reason, RetryPolicy

SNOOZED: Final = "snoozed"
"""The first word of the history entry of a job that asked to run later."""

FINAL_REASONS = frozenset(
    {
        Reason.INVALID_ARGUMENTS,
        Reason.INVALID_RESULT,
        Reason.INVALID_GROWTH,
        Reason.POISONOUS,
        Reason.UNKNOWN_KIND,
    }
)


def backoff_s(policy: RetryPolicy, failures: int, luck: float) -> float:
    """How long to wait for the retry after so many failures; `luck` is in [0, 1)."""
    exponent = min(failures - 1, 64)
    try:
        grown = policy.backoff_s * policy.factor**exponent
    except OverflowError:
        grown = policy.max_backoff_s
    plain = min(grown, policy.max_backoff_s)
    return _bounded(plain * (1 + policy.jitter * (2 * luck - 1)), MAX_DURATION_S)


def _bounded(seconds: float, most: float) -> float:
    """A number from 0 to `most`. A worker may send anything, NaN included."""
    return seconds if 0 <= seconds <= most else (most if seconds > 0 else 0.0)


def settle_failure(
    attempt: Attempt,
    error: JobError,
    luck: float,
    *,
    final: bool = False,
    forced: bool = False,
    after_s: float | None = None,
    most_attempts: int | None = None,
) -> Failed | Retried:
    """An attempt raised or timed out: it is tried again as its policy says, or the job fails.

    If the job asked for a delay (`after_s`), that replaces the policy's backoff, and
    `most_attempts` its number of attempts.
    """
    failures = attempt.failures + 1
    policy = attempt.options.retry
    which, info = (attempt.id, attempt.token), summary(error)
    most = policy.attempts if most_attempts is None else most_attempts
    if final or error.reason in FINAL_REASONS or failures >= most:
        return Failed(*which, error, forced, info=info)
    if after_s is None:
        delay_s = backoff_s(policy, failures, luck)
    else:
        delay_s = _bounded(after_s, MAX_SNOOZE_S)
    return Retried(*which, error, delay_s, forced, info=info)


def settle_refused_retry(attempt: Attempt, error: JobError) -> Failed:
    """A job asked for a retry and has none left: it fails, and the error says what to do."""
    retries = attempt.options.retry.attempts - 1
    had = f"its retries ({retries:,}) are used up" if retries else "it was given none"
    advice = f"it asked for a retry, but {had}; give it more with @app.job(retries=…)"
    error = structs.replace(error, message=f"{error.message} ({advice})".lstrip())
    return Failed(attempt.id, attempt.token, error, info=summary(error))


def settle_crash(attempt: Attempt, error: JobError, crash_limit: int) -> Crashed:
    """An attempt took its process down. `core.effects` decides whether it is tried again."""
    return Crashed(attempt.id, attempt.token, error, attempt.crashes, crash_limit)


def settle_snooze(attempt: Attempt, after_s: float, note: str) -> Snoozed | Failed:
    """A job asked to run later: it does, unless it has started too often already."""
    if attempt.attempt >= MAX_ATTEMPTS:
        message = f"asked to run later for the {MAX_ATTEMPTS:,}th time, and was given up"
        error = JobError(Reason.RAISED, message, "longshore.Snooze")
        return Failed(attempt.id, attempt.token, error, info=message)
    delay_s = _bounded(after_s, MAX_SNOOZE_S)
    info = f"{SNOOZED} for {span(delay_s)}" + (f": {_first_line(note)}" if note else "")
    return Snoozed(attempt.id, attempt.token, delay_s, info=info)


def settle_skip(attempt: AttemptKey, note: str) -> Skipped:
    """A job asked to be skipped."""
    return Skipped(*attempt, info=f"skipped: {_first_line(note)}" if note else "skipped by itself")


def summary(error: JobError) -> str:
    """An error in one line, for a history entry."""
    kind = f"{error.type}: " if error.type else ""
    return _first_line(kind + error.message)


def _first_line(text: str, limit: int = 200) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"


def span(seconds: float) -> str:
    """A duration as a person would say it: 350 ms, 12 s, 5 min 3 s, 2 h 10 min, 3 d 4 h."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
