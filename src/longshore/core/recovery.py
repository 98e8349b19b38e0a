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
"""

from __future__ import annotations

from longshore.model.attempt import Attempt
from longshore.model.ends import Crashed, End, Failed, Retried


def is_recovery(attempt: Attempt) -> bool:
    """Whether this attempt at a turn is to recover from the one before it."""
    return attempt.options.turn and attempt.failures > attempt.options.retry.attempts


def recovering(attempt: Attempt, end: End, events: int) -> End:
    """The end of a turn with so many events, whose class can recover: it may go on after it."""
    if is_recovery(attempt) or not events or not _is_for_good(end):
        return end
    assert isinstance(end, Failed | Crashed)
    wanted = attempt.options.retry.attempts + (events == 1)
    if wanted <= attempt.failures:
        return end
    forced = isinstance(end, Failed) and end.forced
    which = attempt.id, attempt.token
    more = wanted - attempt.failures
    return Retried(*which, end.error, 0.0, forced, failures=more, info=end.info)


def _is_for_good(end: End) -> bool:
    if isinstance(end, Crashed):
        return end.crashes + 1 >= end.limit
    return isinstance(end, Failed)
