"""What a bulk does: which jobs it means, what it does to each, and how far it is after a page.

Theory. A bulk goes back through the numbers of jobs, from the newest at its start to the oldest. A
page is a look (an ordinary list, bounded as lists are) and a transaction. The transaction locks
what the look found, lists those jobs once more under the lock, does what can be done, and writes
how far the bulk is. Its version fences it: a page counts once, whoever tried it, and however often.
The transaction waits for no job: what another one holds is `left` for a later page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, assert_never
from uuid import UUID

from msgspec import structs

from longshore.core.access import reaches
from longshore.core.job_query import LIVE, term
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.limits import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    RESERVED_PREFIX,
    check_name,
)
from longshore.errors import InvalidInput
from longshore.model.bulk import (
    BulkAction,
    BulkPage,
    BulkPlan,
    BulkRun,
    BulkState,
    NewBulk,
    Refusal,
)
from longshore.model.job import ArgTerm, Job, JobFilter, JobPage, JobState
from longshore.model.program import FREE_KINDS

EXAMPLES: Final = 5
"""Of so many jobs that were left as they were a bulk remembers the numbers, for each reason."""
BULKS_KEPT: Final = 1000
"""So many ended bulks are kept, the newest."""
MAX_LISTED_BULKS: Final = 1000
"""How many bulks one request may list."""

KEY_TAKEN: Final = "cannot run: another job with its unique key has not ended"

_NOT_BEGUN: Final = (JobState.WAITING, JobState.DELAYED, JobState.READY)
_ENDED: Final = tuple(state for state in JobState if state in TERMINAL)
_IMPLIED: Final = {
    BulkAction.CANCEL: LIVE,
    BulkAction.RETRY: tuple(state for state in _ENDED if state is not JobState.SUCCEEDED),
    BulkAction.PRIORITY: _NOT_BEGUN,
    BulkAction.MOVE: _NOT_BEGUN,
    BulkAction.DELETE: _ENDED,
}
"""The states that a search means which names none: those in which the action can be done."""


# what is asked for


def check_bulk(new: NewBulk) -> None:
    """Raises `InvalidInput` if a bulk cannot be done at all."""
    if structs.replace(new.wanted, before=None, limit=JobFilter().limit) == JobFilter():
        raise InvalidInput(
            "the search is empty, and so means every job there is; say which jobs: state:live or "
            "state:ended, for example, if all of these are meant"
        )
    for name, at in (("since", new.wanted.since), ("until", new.wanted.until)):
        if at is not None and at.utcoffset() is None:
            raise InvalidInput(
                f"{name} {at.isoformat()} has no time zone; give a time with its zone"
            )
    if new.expected < 0:
        raise InvalidInput(f"expected is {new.expected}; give a count, 0 or more")
    if (new.priority is None) is (new.action is BulkAction.PRIORITY):
        raise _value("priority", new, f"from {MIN_PRIORITY} to {MAX_PRIORITY}")
    if (new.queue is None) is (new.action is BulkAction.MOVE):
        raise _value("queue", new, "the name of a queue")
    if new.priority is not None and not MIN_PRIORITY <= new.priority <= MAX_PRIORITY:
        raise InvalidInput(f"priority is {new.priority}; give {MIN_PRIORITY} to {MAX_PRIORITY}")
    if new.queue is not None:
        check_name("queue", new.queue)
        if new.queue.startswith(RESERVED_PREFIX):
            raise InvalidInput(f"queue '{new.queue}' is Longshore's own; name another one")


def _value(name: str, new: NewBulk, what: str) -> InvalidInput:
    if getattr(new, name) is None:
        return InvalidInput(f"the action {new.action} needs a {name}: {what}")
    return InvalidInput(f"the action {new.action} takes no {name}; leave it out")


def with_states(new: NewBulk) -> NewBulk:
    """The bulk whose search names states: if it names none, those that the action is for."""
    if new.wanted.states:
        return new
    return structs.replace(new, wanted=structs.replace(new.wanted, states=_IMPLIED[new.action]))


def begun(new: NewBulk, number: int, last: int, now: datetime) -> BulkRun:
    """A bulk that has done nothing yet; `last` is the highest number of a job there is."""
    return BulkRun(
        new=new,
        number=number,
        version=1,
        state=BulkState.RUNNING,
        created_at=now,
        last=last,
        cursor=last + 1,
    )


# what is done to a job


def is_meant(new: NewBulk, job: Job) -> bool:
    """Whether a job that the search finds is in reach of who asked."""
    return reaches(new.scope, job.queue, job.kind)


def why_not(new: NewBulk, job: Job) -> str:
    """Why the action cannot be done to a job, in words that follow its number; empty if it can."""
    match new.action:
        case BulkAction.CANCEL:
            if job.state is JobState.CANCELLING:
                return "is being cancelled already"
            return "has ended" if job.state in TERMINAL else ""
        case BulkAction.RETRY:
            return _why_no_retry(job)
        case BulkAction.PRIORITY | BulkAction.MOVE:
            return _why_no_change(job)
        case BulkAction.DELETE:
            return _why_no_delete(job)
        case _:
            assert_never(new.action)


def _why_no_retry(job: Job) -> str:
    if job.group is not None:
        return "belongs to a group: `longshore group retry` runs it again"
    if job.state is JobState.SUCCEEDED:
        return "succeeded: submit a new one to run it again"
    return "" if job.state in TERMINAL else "has not ended"


def _why_no_change(job: Job) -> str:
    if job.state in TERMINAL:
        return "has ended"
    if job.state in OWNED:
        return "runs already"
    if job.options.turn or job.options.reads:
        return "belongs to an actor, whose terms say where its turns run"
    if job.kind.startswith(RESERVED_PREFIX) and job.kind not in FREE_KINDS:
        return "is Longshore's own"
    return ""


def _why_no_delete(job: Job) -> str:
    if job.state not in TERMINAL:
        return "has not ended"
    if job.group is not None:
        return "belongs to a group, with which it goes: `longshore prune`"
    return "belongs to an actor, with which it goes" if job.options.turn else ""


# pages


def look_for(bulk: BulkRun, most: int) -> JobFilter:
    """What the next page lists: what earlier pages left, or the next jobs of the search."""
    if bulk.left:
        return _again(bulk, bulk.left)
    return structs.replace(bulk.new.wanted, before=bulk.cursor, limit=most)


def look_again(bulk: BulkRun, page: BulkPage) -> JobFilter:
    """What a transaction lists that has locked the jobs of a page: those that still match."""
    return _again(bulk, page.jobs)


def _again(bulk: BulkRun, ids: tuple[UUID, ...]) -> JobFilter:
    return structs.replace(bulk.new.wanted, ids=ids, before=bulk.last + 1, limit=len(ids))


def page_of(bulk: BulkRun, found: JobPage, most: int) -> BulkPage:
    """The page that a look leads to."""
    jobs = tuple(job.id for job in found.jobs if is_meant(bulk.new, job))
    if bulk.left:
        return BulkPage(bulk.new.id, bulk.version, jobs, bulk.cursor)
    if found.stopped_at is not None:
        cursor = found.stopped_at
    else:
        cursor = found.jobs[-1].number if len(found.jobs) >= most else 0
    return BulkPage(bulk.new.id, bulk.version, jobs, cursor)


def advanced(
    bulk: BulkRun,
    page: BulkPage,
    done: int,
    refused: Iterable[tuple[int, str]],
    left: Sequence[UUID],
    now: datetime,
) -> BulkRun:
    """The bulk after a page: so many jobs were done, and these refused, by number and reason."""
    reasons = tuple(refused)
    is_over = not page.cursor and not left
    return structs.replace(
        bulk,
        version=bulk.version + 1,
        state=BulkState.DONE if is_over else BulkState.RUNNING,
        ended_at=now if is_over else None,
        cursor=page.cursor,
        left=tuple(left),
        matched=bulk.matched + done + len(reasons),
        done=bulk.done + done,
        refused=counted(bulk.refused, reasons),
    )


def stopped(bulk: BulkRun, by: str, now: datetime) -> BulkRun:
    """The bulk after its cancel. One that has ended stays as it is."""
    if bulk.state is not BulkState.RUNNING:
        return bulk
    changed = {"state": BulkState.CANCELLED, "ended_at": now, "stopped_by": by, "left": ()}
    return structs.replace(bulk, version=bulk.version + 1, **changed)


def counted(before: tuple[Refusal, ...], refused: Iterable[tuple[int, str]]) -> tuple[Refusal, ...]:
    """The refusals with more jobs, by number and reason."""
    found = {one.why: one for one in before}
    for number, why in refused:
        one = found.get(why, Refusal(why, 0))
        examples = one.examples if len(one.examples) >= EXAMPLES else (*one.examples, number)
        found[why] = Refusal(why, one.count + 1, examples)
    return tuple(found.values())


# plans


def planned(new: NewBulk, found: JobPage) -> BulkPlan:
    """What a bulk would do to the jobs of one look."""
    meant = [job for job in found.jobs if is_meant(new, job)]
    refused = [(job.number, why) for job in meant if (why := why_not(new, job))]
    states: dict[JobState, int] = {}
    for job in meant:
        states[job.state] = states.get(job.state, 0) + 1
    is_full = len(found.jobs) >= new.wanted.limit > 0
    go_on = found.jobs[-1].number if is_full and found.stopped_at is None else found.stopped_at
    return BulkPlan(
        matched=len(meant),
        would=len(meant) - len(refused),
        states=states,
        refused=counted((), refused),
        go_on=go_on,
    )


def together(first: BulkPlan, second: BulkPlan) -> BulkPlan:
    """What two looks counted, one after the other."""
    states = dict(first.states)
    for state, count in second.states.items():
        states[state] = states.get(state, 0) + count
    found = {one.why: one for one in first.refused}
    for one in second.refused:
        known = found.get(one.why, Refusal(one.why, 0))
        examples = (*known.examples, *one.examples)[:EXAMPLES]
        found[one.why] = Refusal(one.why, known.count + one.count, examples)
    return BulkPlan(
        matched=first.matched + second.matched,
        would=first.would + second.would,
        states=states,
        refused=tuple(found.values()),
        go_on=second.go_on,
    )


# words


def action_words(new: NewBulk) -> str:
    """The action and its value: `move to mail`."""
    match new.action:
        case BulkAction.PRIORITY:
            return f"priority {new.priority}"
        case BulkAction.MOVE:
            return f"move to {new.queue}"
        case BulkAction.CANCEL | BulkAction.RETRY | BulkAction.DELETE:
            return new.action.value
        case _:
            assert_never(new.action)


def done_by(bulk: BulkRun) -> str:
    """Who did something to a job, as its history says it."""
    return ", ".join(filter(None, [bulk.new.by, f"bulk {bulk.number}"]))


def search_words(wanted: JobFilter) -> str:
    """The search as it can be typed. Ids stand for names, and times for ages."""
    terms = [
        term(name, value)
        for name, value in (
            ("kind", wanted.kind),
            ("queue", wanted.queue),
            ("state", _state_words(wanted.states)),
            ("worker", None if wanted.worker is None else str(wanted.worker)),
            ("group", None if wanted.group is None else str(wanted.group)),
            ("since", None if wanted.since is None else wanted.since.isoformat()),
            ("older", None if wanted.until is None else wanted.until.isoformat()),
            ("slower", None if wanted.slower_s is None else f"{wanted.slower_s:g}s"),
            ("error", wanted.error),
        )
        if value is not None
    ]
    labels = [term("label", one) for one in wanted.labels]
    return " ".join([*terms, *labels, *map(_arg_term, wanted.args)])


def _state_words(states: tuple[JobState, ...]) -> str | None:
    for word, several in (("live", LIVE), ("ended", _ENDED)):
        if set(states) == set(several):
            return word
    return ",".join(states) or None


def _arg_term(one: ArgTerm) -> str:
    return term(f"arg.{one.path}", one.value)


def share(bulk: BulkRun) -> float:
    """How far a bulk is, from 0 to 1: by the count that was made before, or by the numbers."""
    if bulk.state is BulkState.DONE:
        return 1.0
    if bulk.new.expected:
        return min(0.99, bulk.matched / bulk.new.expected)
    return 1.0 - bulk.cursor / (bulk.last + 1)
