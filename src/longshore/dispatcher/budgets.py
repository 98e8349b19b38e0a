"""How much one request may ask for, and how many may be under way, in all and of one client.

Most requests are short, but a WAIT stays for as long as its client likes. So WAITs have a budget of
their own, counted in jobs: a client that waits for many jobs keeps no other from submitting.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, assert_never

from longshore.config import DispatcherSettings
from longshore.core.access import MAX_SUBJECT_CHARS
from longshore.core.actor_limits import MAX_ASKS, check_actor_name
from longshore.core.bulks import MAX_LISTED_BULKS
from longshore.core.callbacks import MAX_TOKEN_CHARS
from longshore.core.group_limits import (
    MAX_ADDED_JOBS,
    MAX_KEY_CHARS,
    MAX_NODES_LISTED,
    MAX_PART_NODES,
)
from longshore.core.limits import (
    MAX_DRAINED,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_LISTED,
    MAX_NAME_CHARS,
    MAX_REQUEST_JOBS,
    MAX_SEARCHED_ARGS,
    MAX_SEARCHED_CHARS,
    check_length,
    check_name,
)
from longshore.core.schedule_limits import MAX_SYNCED
from longshore.core.tickets import MAX_TICKET_CHARS
from longshore.core.worker_limits import MAX_TEXT_CHARS
from longshore.errors import TooLarge, Unavailable
from longshore.model.group import GroupFilter, GroupState
from longshore.model.job import JobFilter, JobState
from longshore.wire import access_messages as t
from longshore.wire import actor_messages as a
from longshore.wire import bulk_messages as b
from longshore.wire import file_messages as f
from longshore.wire import messages as m
from longshore.wire import schedule_messages as s
from longshore.wire import web_messages as w
from longshore.wire.limit_messages import LimitRequest

LEAST_WAIT: Final = 100
"""A WAIT counts for at least this many jobs."""


def check_request(request: m.Request) -> None:
    """Raises if a request asks for too much."""
    match request:
        case m.Submit() | m.Wait() | m.Cancel() | m.Retry():
            _check_count(request, "jobs", len(request.jobs), MAX_REQUEST_JOBS)
        case a.Send():
            _check_count(request, "messages", len(request.messages), MAX_REQUEST_JOBS)
        case m.Drain():
            _check_count(request, "workers", len(request.workers), MAX_DRAINED)
            for name in request.workers:
                check_length("DRAIN: a worker's name", name, MAX_TEXT_CHARS)
        case m.ListJobs():
            _check_filter(request, request.wanted)
        case m.SubmitGroup():
            _check_count(request, "jobs", len(request.part.nodes), MAX_PART_NODES)
        case m.AddToGroup():
            _check_count(request, "jobs", len(request.nodes), MAX_ADDED_JOBS)
        case m.ListGroups():
            _check_group_filter(request, request.wanted)
        case m.ListNodes():
            _check_count(request, "jobs", max(request.most, len(request.jobs)), MAX_NODES_LISTED)
        case m.Prune():
            _check_count(request, "states", len(request.states), len(JobState))
        case m.ListRunTimes():
            _check_count(request, "kinds", len(request.kinds), MAX_REQUEST_JOBS)
            for kind in request.kinds:
                check_length("LISTRUNTIMES: a kind", kind, MAX_NAME_CHARS)
        case m.ShowKind():
            check_length("SHOWKIND: the kind", request.kind, MAX_NAME_CHARS)
        case m.Pause():
            check_name("queue", request.queue)
        case m.Show() | m.Why() | m.ReadLogs() | m.Hello() | m.ShowCapacity() | m.AwaitChange():
            pass
        case m.ListWorkers() | m.ListDispatchers() | m.ListQueues() | m.ListLanes():
            pass
        case m.RetryGroup() | m.RerunGroup():
            _check_count(request, "jobs", len(request.keys), MAX_REQUEST_JOBS)
            verb = type(request).__name__.upper()
            for key in request.keys:
                check_length(f"{verb}: a key", key, MAX_KEY_CHARS + 1)
        case m.CancelGroup():
            check_length("CANCELGROUP: the prefix", request.prefix, MAX_KEY_CHARS + 1)
        case m.OpenGate():
            check_length("OPENGATE: the key", request.key, MAX_KEY_CHARS)
        case m.ShowGroup() | m.PauseGroup():
            pass
        case a.StartActors():
            _check_count(request, "actors", len(request.actors), MAX_REQUEST_JOBS)
        case a.Resolve():
            check_length("RESOLVE: the token", request.token, MAX_TOKEN_CHARS)
        case a.AwaitReplies():
            _check_count(request, "asks", len(request.asks), MAX_ASKS)
        case a.ListActors():
            _check_count(request, "actors", request.wanted.limit, MAX_LISTED)
            check_length("LISTACTORS: the type", request.wanted.type or "", MAX_NAME_CHARS)
        case a.ListMail():
            _check_count(request, "messages", request.most, MAX_REQUEST_JOBS)
            check_actor_name(request.type, request.key)
        case a.ListUndelivered():
            _check_count(request, "messages", request.most, MAX_REQUEST_JOBS)
        case a.SortUndelivered():
            pass
        case a.ShowActor() | a.ListTurns() | a.PauseActor() | a.StopActor():
            check_actor_name(request.type, request.key)
        case a.EditActor() | a.SortMail() | a.ReadActor():
            check_actor_name(request.type, request.key)
        case t.CreateToken() | t.RevokeToken() | t.ListTokens() | t.ListAudit() | t.ShowAsker():
            _check_access(request)
        case _:
            _check_more(request)


_MoreRequest = (
    f.FileRequest | f.BlobRequest | w.WebRequest | s.ScheduleRequest | LimitRequest | b.BulkRequest
)


def _check_more(request: _MoreRequest) -> None:
    if isinstance(request, s.ScheduleRequest):
        _check_schedules(request)
    elif isinstance(request, LimitRequest):
        pass  # the service checks the one key or pattern that it names
    elif isinstance(request, b.BulkRequest):
        _check_bulks(request)
    elif isinstance(request, w.WebRequest):
        _check_of_gateway(request)
    else:
        _check_files(request)


def _check_files(request: f.FileRequest | f.BlobRequest) -> None:
    """Raises if a request about filesets asks for too much."""
    match request:
        case f.ListFilesets() | f.ListVersions() | f.ListDoomed() | f.ListOldLogs():
            _check_count(request, "entries", request.most, MAX_LISTED)
        case f.RemoveVersions():
            _check_count(request, "versions", len(request.versions), MAX_REQUEST_JOBS)
        case f.PinFiles() | f.LocateBlobs():
            _check_count(request, "blobs", len(request.blobs), f.MAX_PINNED)
        case f.NoteStored():
            _check_count(request, "blobs", len(request.stored), f.MAX_PINNED)
        case f.NoteArchived():
            _check_count(request, "parts", len(request.parts), f.MAX_PINNED)
        case f.DropArchived():
            _check_count(request, "jobs", len(request.jobs), f.MAX_PINNED)
        case f.ForgetBlobs():
            _check_count(request, "blobs", len(request.gone), f.MAX_PINNED)
        case f.ShowVersion() | f.ShowVersionOfJob() | f.CollectFiles() | f.BindFolder():
            pass
        case f.SealManifest() | f.PublishUpload() | f.FixInput():
            pass
        case f.SaveCheckpoint() | f.FindCheckpoint():
            pass
        case _:
            assert_never(request)
    for name in ("fileset", "ticket", "after", "folder", "node"):
        check_length(
            f"{type(request).__name__.upper()}: {name}",
            getattr(request, name, ""),
            MAX_TICKET_CHARS,
        )


def _check_schedules(request: s.ScheduleRequest) -> None:
    """Raises if a request about schedules asks for too much."""
    match request:
        case s.ListSchedules() | s.ShowSchedule():
            _check_count(request, "entries", request.most, MAX_LISTED)
        case s.SyncSchedules():
            _check_count(request, "schedules", len(request.schedules), MAX_SYNCED)
        case s.PutSchedule() | s.PauseSchedule() | s.TriggerSchedule():
            pass
        case s.BackfillSchedule() | s.RemoveSchedule():
            pass
        case _:
            assert_never(request)
    for name in ("name", "after", "app"):
        text = getattr(request, name, "") or ""
        check_length(f"{type(request).__name__.upper()}: {name}", text, MAX_NAME_CHARS)


def _check_bulks(request: b.BulkRequest) -> None:
    """Raises if a request about bulks asks for too much."""
    match request:
        case b.PlanBulk() | b.StartBulk():
            _check_filter(request, request.new.wanted)
            check_length("a bulk: its queue", request.new.queue or "", MAX_NAME_CHARS)
        case b.ListBulks():
            _check_count(request, "bulks", request.most, MAX_LISTED_BULKS)
        case b.ShowBulk() | b.StopBulk():
            pass
        case _:
            assert_never(request)


def _check_of_gateway(request: w.WebRequest) -> None:
    """Raises if a request about web workers asks for too much."""
    match request:
        case w.AttendWebWorkers():
            _check_count(request, "web workers", len(request.attended), MAX_LISTED)
            _check_count(request, "web workers", len(request.notes), MAX_LISTED)
        case w.ListWebWorkers():
            _check_count(request, "web workers", len(request.web_workers or ()), MAX_LISTED)
        case w.RegisterWebWorker() | w.ResignWebWorker() | w.ReportEnd() | w.ShowFleetKey():
            pass
        case _:
            assert_never(request)


def _check_access(request: t.AccessRequest) -> None:
    if isinstance(request, t.ListAudit):
        _check_count(request, "entries", request.wanted.limit, MAX_LISTED)
        for text in (request.wanted.by, request.wanted.action, request.wanted.subject):
            check_length("LISTAUDIT: a text", text or "", MAX_SUBJECT_CHARS)
    if isinstance(request, t.RevokeToken):
        check_length("REVOKETOKEN: the token", request.token, MAX_SUBJECT_CHARS)


def _check_filter(request: m.Request, wanted: JobFilter) -> None:
    verb = type(request).__name__.upper()
    _check_count(request, "states", len(wanted.states), len(JobState))
    _check_count(request, "labels", len(wanted.labels), MAX_LABELS)
    _check_count(request, "jobs", wanted.limit, MAX_LISTED)
    _check_count(request, "ids", len(wanted.ids), MAX_REQUEST_JOBS)
    for label in wanted.labels:
        check_length(f"{verb}: a label", label, MAX_LABEL_CHARS)
    for name in (wanted.kind, wanted.queue):
        check_length(f"{verb}: a name", name or "", MAX_NAME_CHARS)
    _check_count(request, "arguments", len(wanted.args), MAX_SEARCHED_ARGS)
    for text in (
        wanted.error or "",
        *(part for one in wanted.args for part in (one.path, one.value)),
    ):
        check_length(f"{verb}: a text to search for", text, MAX_SEARCHED_CHARS)


def _check_group_filter(request: m.ListGroups, wanted: GroupFilter) -> None:
    _check_count(request, "states", len(wanted.states), len(GroupState))
    _check_count(request, "groups", wanted.limit, MAX_LISTED)
    check_length("LISTGROUPS: the name", wanted.name or "", MAX_NAME_CHARS)


def _check_count(request: m.Request, what: str, count: int, most: int) -> None:
    if count > most:
        verb = type(request).__name__.upper()
        raise TooLarge(f"{verb} names {count:,} {what}; a request may name {most:,}: send several")


class RequestBudgets:
    """Counts the requests that are under way, in all and of each client."""

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

    def begin(self, peer: bytes, request: m.Request) -> None:
        """A request begins; raises if it asks for too much, or too many are under way."""
        check_request(request)
        budget, count = self._of(request)
        budget.take(peer, count)

    def end(self, peer: bytes, request: m.Request) -> None:
        """A request that began is over."""
        budget, count = self._of(request)
        budget.give_back(peer, count)

    def _of(self, request: m.Request) -> tuple[_Budget, int]:
        if isinstance(request, m.Wait):
            return self._waits, max(len(request.jobs), LEAST_WAIT)
        if isinstance(request, m.AwaitChange) or (isinstance(request, a.Send) and request.wait_s):
            return self._waits, LEAST_WAIT
        if isinstance(request, a.AwaitReplies):
            return self._waits, max(len(request.asks), LEAST_WAIT)
        return self._requests, 1


class _Budget:
    """How much may be under way, in all and for one peer."""

    def __init__(self, all_of: str, most: int, each: str, most_each: int) -> None:
        self._bounds = (all_of, most, each, most_each)
        self._taken = 0
        self._by_peer: Counter[bytes] = Counter()

    def take(self, peer: bytes, count: int) -> None:
        """Takes so much; raises `Unavailable` if less is left."""
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
        """Gives so much back."""
        self._taken -= count
        self._by_peer[peer] -= count
        if self._by_peer[peer] <= 0:
            del self._by_peer[peer]
