"""What one request may ask for, and how many may be under way, in all and of one client.

Requests come and go; a WAIT stays for as long as its client likes. So waits have a budget of their
own, counted in the jobs that are waited for: whoever waits for many keeps nobody from submitting.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, assert_never

from longshore.config import DispatcherSettings
from longshore.core.introductions import MAX_TEXT_CHARS
from longshore.core.limits import (
    MAX_DRAINED,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_LISTED,
    MAX_NAME_CHARS,
    MAX_REQUEST_JOBS,
    check_name,
)
from longshore.dispatcher.commits import Commits
from longshore.errors import InvalidInput, LongshoreError, TooLarge, Unavailable
from longshore.model.job import JobFilter, JobState
from longshore.wire import messages as m

LEAST_WAIT: Final = 100
"""A WAIT counts for at least so many jobs, however few it names."""


def check_request(request: m.Request) -> None:
    """Raises if a request names too much, before anything is done for it."""
    match request:
        case m.Submit() | m.Wait() | m.Cancel() | m.Retry():
            _check_count(request, "jobs", len(request.jobs), MAX_REQUEST_JOBS)
        case m.Drain():
            _check_count(request, "workers", len(request.workers), MAX_DRAINED)
            for name in request.workers:
                _check_length(request, "a worker's name", name, MAX_TEXT_CHARS)
        case m.ListJobs():
            _check_filter(request, request.wanted)
        case m.Prune():
            _check_count(request, "states", len(request.states), len(JobState))
        case m.ShowKind():
            _check_length(request, "the kind", request.kind, MAX_NAME_CHARS)
        case m.Pause():
            check_name("queue", request.queue)
        case m.Show() | m.Why() | m.ReadLogs() | m.Hello():
            pass
        case m.ListWorkers() | m.ListDispatchers() | m.ListQueues() | m.ShowCapacity():
            pass
        case _:
            assert_never(request)


def _check_filter(request: m.ListJobs, wanted: JobFilter) -> None:
    _check_count(request, "states", len(wanted.states), len(JobState))
    _check_count(request, "labels", len(wanted.labels), MAX_LABELS)
    _check_count(request, "jobs", wanted.limit, MAX_LISTED)
    for label in wanted.labels:
        _check_length(request, "a label", label, MAX_LABEL_CHARS)
    for name in (wanted.kind, wanted.queue):
        _check_length(request, "a name", name or "", MAX_NAME_CHARS)


def _check_count(request: m.Request, what: str, count: int, most: int) -> None:
    if count > most:
        raise TooLarge(
            f"{_verb(request)} names {count:,} {what}, more than the {most:,} of one request; "
            "send several"
        )


def _check_length(request: m.Request, what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidInput(
            f"{_verb(request)}: {what} has {len(text):,} characters; {most} are allowed"
        )


def _verb(request: m.Request) -> str:
    return type(request).__name__.upper()


def check_room(settings: DispatcherSettings, commits: Commits, jobs: int, size: int) -> None:
    """Raises `Unavailable` if so many submits more, of so many bytes, are too many for now."""
    most, most_bytes = settings.max_queued_submits, settings.max_queued_bytes
    if commits.queued_submits + jobs > most:
        raise Unavailable(
            f"{most:,} submits are waiting for the store (max_queued_submits); try again"
        )
    if commits.queued_bytes and commits.queued_bytes + size > most_bytes:
        raise Unavailable(
            f"submits of {commits.queued_bytes:,} bytes are waiting for the store "
            f"(max_queued_bytes: {most_bytes:,}); try again"
        )


class RequestBudgets:
    """The requests that are under way, and whose they are."""

    def __init__(self, settings: DispatcherSettings) -> None:
        self._requests = _Budget(
            "max_requests", settings.max_requests, "max_peer_requests", settings.max_peer_requests
        )
        self._waits = _Budget(
            "max_waited_jobs",
            settings.max_waited_jobs,
            "max_peer_waited_jobs",
            settings.max_peer_waited_jobs,
        )

    def begin(self, peer: bytes, request: m.Request) -> LongshoreError | None:
        """A request begins, unless it is refused: then this is why."""
        try:
            check_request(request)
            budget, count = self._of(request)
            budget.take(peer, count)
        except LongshoreError as error:
            return error
        return None

    def end(self, peer: bytes, request: m.Request) -> None:
        """A request that had begun is answered."""
        budget, count = self._of(request)
        budget.give_back(peer, count)

    def _of(self, request: m.Request) -> tuple[_Budget, int]:
        if isinstance(request, m.Wait):
            return self._waits, max(len(request.jobs), LEAST_WAIT)
        return self._requests, 1


class _Budget:
    """How much there may be of something, in all and for one peer."""

    def __init__(self, all_of: str, most: int, each: str, most_each: int) -> None:
        self._bounds = (all_of, most, each, most_each)
        self._taken = 0
        self._by_peer: Counter[bytes] = Counter()

    def take(self, peer: bytes, count: int) -> None:
        """Takes so much; raises `Unavailable` if there is not so much left."""
        all_of, most, each, most_each = self._bounds
        if self._by_peer[peer] + count > most_each:
            raise Unavailable(
                f"this client has too many requests under way ({each}: {most_each:,}); try again"
            )
        if self._taken + count > most:
            raise Unavailable(
                f"the dispatcher has too many requests under way ({all_of}: {most:,}); try again"
            )
        self._taken += count
        self._by_peer[peer] += count

    def give_back(self, peer: bytes, count: int) -> None:
        """So much is free again."""
        self._taken -= count
        self._by_peer[peer] -= count
        if self._by_peer[peer] <= 0:
            del self._by_peer[peer]
