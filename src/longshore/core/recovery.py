"""Events that have failed for good: how an actor gets the chance to recover.

A turn fails for good when its policy allows no further try, or its error forbids one. If the class
of the actor has a handler for that (`KindInfo.recovers`), the turn goes on all the same, and its
count of failures says how:

- a turn that had several events is tried once more with one of them, so that it is certain which
  one cannot be handled: it has as many failures as its policy allows attempts;
- then comes the recovery: it has one failure more. Its input has the event and the error, and the
  handler `failed` runs instead of the event's own. If that fails too, the turn has failed, as it
  would have without the handler.

The count lies in the job's row, so a recovery that is lost with its worker is a recovery again. A
resume begins at no failures.

Not every such end is reported by a worker: a dispatcher ends a turn that its worker cannot stop
(`recovering` too), and a store gives up a turn whose workers are lost with it time and again
(`of_lost_turn`). How many events it had is then not known. But a turn with a failure or a crash
behind it has one. Only a cancel is what somebody wanted: nothing recovers from it.
"""

from __future__ import annotations

from msgspec import structs

from longshore.core.effects import Effect, of_loss
from longshore.model.attempt import Attempt
from longshore.model.ends import Crashed, End, Failed, Retried
from longshore.model.job import JobState
from longshore.model.worker import WorkerInfo


def is_recovery(attempt: Attempt) -> bool:
    """Whether this attempt at a turn is to recover from the one before it."""
    return attempt.options.turn and attempt.failures > attempt.options.retry.attempts


def recovering(attempt: Attempt, end: End, events: int | None = None) -> End:
    """The end of a turn whose class can recover: it may go on after it.

    It had so many events; None if that is not known.
    """
    if is_recovery(attempt) or events == 0 or not _is_for_good(end):
        return end
    assert isinstance(end, Failed | Crashed)
    had_one = events == 1 or (events is None and _has_one(attempt.failures, attempt.crashes))
    wanted = attempt.options.retry.attempts + had_one
    if wanted <= attempt.failures:
        return end
    forced = isinstance(end, Failed) and end.forced
    which = attempt.id, attempt.token
    more = wanted - attempt.failures
    return Retried(*which, end.error, 0.0, forced, failures=more, info=end.info)


def can_recover(worker: WorkerInfo | None, kind: str) -> bool:
    """Whether the class of actors behind this kind has a handler for it, as this worker says."""
    info = None if worker is None else worker.kinds.get(kind)
    return info is not None and info.recovers


def of_lost_turn(
    failures: int, crashes: int, attempts: int, crash_limit: int | None, why: str
) -> Effect:
    """What the loss of its worker does to a turn whose class can recover: see `effects.of_loss`.

    It has so many failures, crashes and `attempts` that its policy allows. If the loss would give
    it up, it runs once more, to recover or to find the event, and the error is kept for that.
    """
    effect = of_loss(crashes, crash_limit, why)
    change = effect[JobState.RUNNING]
    wanted = attempts + _has_one(failures, crashes)
    if not change.ends or wanted <= failures:
        return effect
    again = of_loss(crashes, crashes + 2, why)
    more = structs.replace(
        again[JobState.RUNNING],
        failures=wanted - failures,
        keeps_error=False,
        error=change.error,
        info=change.info,
    )
    return {**effect, JobState.RUNNING: more}


def _has_one(failures: int, crashes: int) -> bool:
    """Whether a turn with so many failures and crashes behind it got a single event."""
    return failures > 0 or crashes > 0


def _is_for_good(end: End) -> bool:
    if isinstance(end, Crashed):
        return end.crashes + 1 >= end.limit
    return isinstance(end, Failed)
