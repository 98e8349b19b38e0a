"""Who asks, and whether they may: judges requests, and hides what their askers may not see.

A request that names a token is judged here, by what the store keeps of the token. That is asked
for at most once a second for each token, so that a revoked one is worth nothing a second later. The
rules are pure (`core.access`); this file knows which right each request needs, and where a request
and its answer name jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, Protocol, get_args
from uuid import UUID

import msgspec
from msgspec import structs

from longshore.core.access import (
    LOCAL,
    NAMELESS,
    NAMELESS_HASH,
    Asker,
    Right,
    check_named,
    check_payloads,
    check_right,
    check_serve,
    check_start,
    check_types,
    check_watchers,
    check_whole,
    is_whole,
    narrowed,
    reaches,
    reaches_actors,
    reaches_kind,
    reaches_queue,
)
from longshore.core.bulks import action_words
from longshore.core.key_words import bounds_words
from longshore.core.limits import RESERVED_PREFIX
from longshore.dispatcher.hiding import hidden_from
from longshore.dispatcher.tasks import Tasks
from longshore.errors import Conflict, NotAllowed, NotAuthenticated, NotFound, StoreUnavailable
from longshore.model.access import AuditEntry, Scope, Token
from longshore.model.actor import ActorPage
from longshore.model.depth import LaneView
from longshore.model.job import JobPage, Submission
from longshore.model.run_time import RunTime
from longshore.model.schedule import Schedule
from longshore.model.worker import QueueView
from longshore.ports import Clock, Store
from longshore.wire import access_messages as t
from longshore.wire import actor_messages as a
from longshore.wire import bulk_messages as b
from longshore.wire import file_messages as f
from longshore.wire import limit_messages as ls
from longshore.wire import messages as m
from longshore.wire import schedule_messages as s
from longshore.wire import web_messages as w

log = logging.getLogger("longshore.dispatcher")

KEPT_S: Final = 1.0
MOST_KEPT: Final = 10_000
USED_EVERY_S: Final = 60.0

NEEDS: Final[dict[type, Right]] = {
    **dict.fromkeys((m.Hello, t.ShowAsker), Right.ASK),
    **dict.fromkeys(
        (m.Wait, m.Show, m.Why, m.ReadLogs, m.ListJobs, m.ShowGroup, m.ListGroups, m.ListNodes),
        Right.READ,
    ),
    **dict.fromkeys(
        (m.ListWorkers, m.ListDispatchers, m.ShowCapacity, m.ShowKind, m.ListRunTimes),
        Right.READ,
    ),
    **dict.fromkeys((m.ListQueues, m.ListLanes, m.AwaitChange), Right.READ),
    **dict.fromkeys((a.ShowActor, a.ListActors, a.ListTurns, a.ListMail), Right.READ),
    **dict.fromkeys((m.Submit, m.SubmitGroup, m.AddToGroup, m.Cancel, m.Retry), Right.SUBMIT),
    **dict.fromkeys(
        (m.CancelGroup, m.PauseGroup, m.RetryGroup, m.RerunGroup, m.OpenGate), Right.SUBMIT
    ),
    **dict.fromkeys((a.StartActors, a.Send, a.Resolve, a.AwaitReplies, a.ReadActor), Right.SUBMIT),
    **dict.fromkeys((a.PauseActor, a.StopActor, a.EditActor, a.SortMail), Right.ADMIN),
    **dict.fromkeys((a.ListUndelivered, a.SortUndelivered), Right.ADMIN),
    **dict.fromkeys((m.Drain, m.Pause, m.Prune), Right.ADMIN),
    **dict.fromkeys((ls.ListLimits, ls.ShowKey, ls.ListKeys), Right.READ),
    **dict.fromkeys((ls.SetLimit, ls.RemoveLimit), Right.ADMIN),
    **dict.fromkeys((t.CreateToken, t.RevokeToken, t.ListTokens, t.ListAudit), Right.ADMIN),
    **dict.fromkeys(
        (f.ListFilesets, f.ListVersions, f.ShowVersion, f.ShowVersionOfJob, f.LocateBlobs),
        Right.READ,
    ),
    **dict.fromkeys((f.PinFiles, f.NoteStored, f.SealManifest, f.PublishUpload), Right.SUBMIT),
    **dict.fromkeys((f.RemoveVersions, f.CollectFiles), Right.ADMIN),
    # With a ticket, gateways ask for nobody: the ticket is judged.
    **dict.fromkeys((f.FixInput, f.SaveCheckpoint, f.FindCheckpoint), Right.WORK),
    **dict.fromkeys((f.ListDoomed, f.ForgetBlobs, f.BindFolder), Right.ADMIN),
    **dict.fromkeys((f.ListOldLogs, f.NoteArchived, f.DropArchived), Right.ADMIN),
    **dict.fromkeys((s.ShowSchedule, s.ListSchedules), Right.READ),
    **dict.fromkeys(
        (s.PutSchedule, s.PauseSchedule, s.TriggerSchedule, s.BackfillSchedule, s.RemoveSchedule),
        Right.SUBMIT,
    ),
    s.SyncSchedules: Right.SUBMIT,
    # To delete jobs needs more, as the service says.
    **dict.fromkeys((b.StartBulk, b.StopBulk), Right.SUBMIT),
    **dict.fromkeys((b.PlanBulk, b.ShowBulk, b.ListBulks), Right.READ),
    # Only gateways ask these; the operation of HTTP has been judged before.
    w.ListWebWorkers: Right.READ,
    **dict.fromkeys((w.RegisterWebWorker, w.ResignWebWorker, w.ReportEnd), Right.WORK),
    **dict.fromkeys((w.AttendWebWorkers, w.ShowFleetKey), Right.ADMIN),
}
"""The right that each request needs."""

_OF_ALL: Final[dict[type, str]] = {
    m.ListGroups: "a list of groups",
    m.Drain: "a worker",
    m.Prune: "what is pruned",
    a.ListUndelivered: "what could not be delivered",
    a.SortUndelivered: "what could not be delivered",
    a.Resolve: "a callback",
    **dict.fromkeys((*get_args(f.FileRequest), *get_args(f.BlobRequest)), "a fileset"),
    s.SyncSchedules: "all schedules of an app",
    **dict.fromkeys(get_args(ls.LimitRequest), "a limit"),
    t.CreateToken: "a token",
    t.RevokeToken: "a token",
    t.ListTokens: "the list of tokens",
    t.ListAudit: "the audit",
}
"""What concerns more jobs than a scope may reach to, and how it is called."""

_AUDITED: Final[dict[type, str]] = {
    m.Cancel: "cancel",
    m.Retry: "retry",
    m.AddToGroup: "add_to_group",
    m.CancelGroup: "cancel_group",
    m.PauseGroup: "pause_group",
    m.RetryGroup: "retry_group",
    m.RerunGroup: "rerun_group",
    m.OpenGate: "open_gate",
    m.Drain: "drain",
    m.Pause: "pause_queue",
    m.Prune: "prune",
    ls.SetLimit: "set_limit",
    ls.RemoveLimit: "remove_limit",
    a.PauseActor: "pause_actor",
    a.StopActor: "stop_actor",
    a.EditActor: "edit_actor",
    a.SortMail: "sort_mail",
    a.SortUndelivered: "sort_undelivered",
    f.RemoveVersions: "remove_versions",
    f.CollectFiles: "collect_files",
    s.PutSchedule: "put_schedule",
    s.SyncSchedules: "sync_schedules",
    s.PauseSchedule: "pause_schedule",
    s.TriggerSchedule: "trigger_schedule",
    s.BackfillSchedule: "backfill_schedule",
    s.RemoveSchedule: "remove_schedule",
    b.StartBulk: "start_bulk",
    b.StopBulk: "stop_bulk",
    t.CreateToken: "create_token",
    t.RevokeToken: "revoke_token",
}
_AUDITED_IF_NAMED: Final[dict[type, str]] = {
    m.SubmitGroup: "submit_group",
    a.StartActors: "start_actors",
    f.PublishUpload: "publish_fileset",
}
"""What many clients do all the time: it leaves an entry if a key or a token says who it was."""
ACTIONS: Final = frozenset((*_AUDITED.values(), *_AUDITED_IF_NAMED.values()))
_RESUMED: Final = {"pause_group": "resume_group", "pause_queue": "resume_queue"} | {
    "pause_actor": "resume_actor",
    "pause_schedule": "resume_schedule",
}

_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode


class KnownKeys(Protocol):
    """The keys that may connect, if keys are asked for."""

    def name_of(self, key: str) -> str:
        """The name of a client's key."""

    def may_speak_for_others(self, key: str) -> bool:
        """Whether this is the key of a gateway."""


class Tokens:
    """What the store keeps of tokens, at most a second old."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, tuple[float, Token | None]] = {}
        self._noted: dict[UUID, float] = {}
        self._tasks = Tasks()

    async def asker(self, hash: bytes) -> Asker:
        """Who holds the token with this hash; raises `NotAuthenticated` if nobody does."""
        if hash == NAMELESS_HASH:
            return NAMELESS
        token = await self._kept(hash)
        if token is None:
            raise NotAuthenticated(
                "this token is unknown, expired or revoked; make one: `longshore token create`"
            )
        self._note(token, self._clock.now())
        return Asker(f"token:{token.name}", token.role, token.scope)

    async def is_good(self, hash: bytes) -> bool:
        """Whether a token is neither unknown nor expired nor revoked. That is no use of it."""
        return await self._kept(hash) is not None

    async def _kept(self, hash: bytes) -> Token | None:
        now = self._clock.now()
        asked_at, token = self._known.get(hash, (float("-inf"), None))
        if now - asked_at >= KEPT_S:
            token = await self._store.token(hash)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[hash] = (now, token)
        return token

    def _note(self, token: Token, now: float) -> None:
        """Has the store note the use of a token, now and then."""
        if now - self._noted.get(token.id, float("-inf")) >= USED_EVERY_S:
            if len(self._noted) >= MOST_KEPT:
                self._noted.clear()
            self._noted[token.id] = now
            self._tasks.start(self._write(token.id))

    async def _write(self, id: UUID) -> None:
        try:
            await self._store.tokens_used([id])
        except StoreUnavailable as error:
            log.debug("the use of a token was not noted: %s", error)

    async def close(self) -> None:
        """Stops noting."""
        await self._tasks.cancel()


class Access:
    """Judges requests by who asks."""

    def __init__(self, store: Store, clock: Clock, keys: KnownKeys | None = None) -> None:
        self.tokens = Tokens(store, clock)
        self._store = store
        self._keys = keys

    def of_key(self, key: str) -> Asker:
        """Who asks over a connection that this key opened; empty if keys are not asked for."""
        return Asker(f"key:{self._keys.name_of(key)}") if key and self._keys else LOCAL

    def check_may_name(self, key: str) -> None:
        """Raises `NotAllowed` if the owner of a key names a token, and is no gateway."""
        if key and self._keys is not None and not self._keys.may_speak_for_others(key):
            raise NotAllowed(
                "this key is no gateway's, so its owner may not ask for the holder of a token; "
                "add the key to curve_gateways, or ask without a token (LONGSHORE_TOKEN)"
            )

    async def judged(self, asker: Asker, request: m.Request) -> m.Request:
        """The request as it is to be answered; raises if who asks may not have it so."""
        check_right(asker, NEEDS.get(type(request), Right.ADMIN))
        if (what := _OF_ALL.get(type(request))) is not None:
            check_whole(asker, what)
        if isinstance(request, t.CreateToken | t.RevokeToken):
            check_named(asker)
        if not asker.scope.payloads and isinstance(request, m.ReadLogs | f.BlobRequest):
            check_payloads(asker, "logs" if isinstance(request, m.ReadLogs) else "files")
        if not asker.scope.payloads and _looks_into_arguments(request):
            check_payloads(asker, "arguments")
        if is_whole(asker.scope):
            return request
        return await self._in_reach(asker, request)

    async def _in_reach(self, asker: Asker, request: m.Request) -> m.Request:
        scope = asker.scope
        match request:
            case m.SubmitGroup():
                check_watchers(asker, request.part.head.watchers)
            case m.Show() | m.Why() | m.ReadLogs():
                await self._check_jobs(asker, [request.job])
            case m.Cancel() | m.Retry() | m.Wait():
                await self._check_jobs(asker, request.jobs)
            case m.ListJobs():
                return structs.replace(request, wanted=narrowed(request.wanted, scope))
            case m.ShowGroup() | m.ListNodes() | m.AddToGroup() | m.CancelGroup() | m.PauseGroup():
                await self._check_group(asker, request.group)
            case m.RetryGroup() | m.RerunGroup() | m.OpenGate():
                await self._check_group(asker, request.group)
            case m.Pause():
                _check_queue(asker, request.queue)
            case a.StartActors():
                for actor in request.actors:
                    check_start(asker, actor.type, actor.terms)
            case a.Send():
                check_types(asker, (message.type for message in request.messages))
            case a.ShowActor() | a.ReadActor() | a.ListTurns() | a.ListMail():
                _check_actor(asker, request.type, request.key)
            case a.PauseActor() | a.StopActor() | a.EditActor() | a.SortMail():
                _check_actor(asker, request.type, request.key)
            case s.ShowSchedule() | s.PauseSchedule() | s.TriggerSchedule():
                await self._check_schedule(asker, request.name)
            case s.BackfillSchedule() | s.RemoveSchedule():
                await self._check_schedule(asker, request.name)
            case s.PutSchedule():
                await self._check_replaced(asker, request.new.name)
            case w.RegisterWebWorker():
                check_serve(asker, request.said.kinds)
            case w.ReportEnd():
                await self._check_jobs(asker, [request.report.job])
            case m.ShowKind() if not reaches_kind(scope, request.kind):
                raise NotAllowed(f"{asker.name} does not reach kind '{request.kind}'")
        return request

    async def submitted(self, asker: Asker, request: m.Submit, answer: Any) -> Any:
        """The answers to a submit, which name no job out of reach that has a unique key already."""
        if is_whole(asker.scope):
            return answer
        return [
            await self._known_job(asker, job, one)
            for job, one in zip(request.jobs, answer, strict=True)
        ]

    async def _known_job(
        self, asker: Asker, job: Submission, one: m.SubmitAnswer
    ) -> m.SubmitAnswer:
        known = await self._store.job(one.id) if one.existing and one.id != job.id else None
        if known is None or reaches(asker.scope, known.queue, known.kind):
            return one
        taken = f"another job has the unique key '{job.unique_key}' of kind '{job.kind}'"
        words = f"{taken}, out of reach of {asker.name}; take another key"
        return m.SubmitAnswer(job.id, code=Conflict.code, message=words)

    async def _check_jobs(self, asker: Asker, refs: Iterable[UUID | int]) -> None:
        """Raises if one of these jobs is out of reach. Its kind never changes, its queue seldom."""
        for ref in refs:
            job = await self._store.job(ref)
            if job is not None and not reaches(asker.scope, job.queue, job.kind):
                raise NotFound(f"there is no job {ref}; `longshore jobs` lists those there are")

    async def _check_group(self, asker: Asker, ref: UUID | int) -> None:
        """Raises if a job of this group is out of reach: then all of the group is."""
        group = await self._store.group(ref)
        lanes = [] if group is None else await self._store.group_lanes(group.id)
        for queue, kind in lanes:
            is_run = not kind.startswith(RESERVED_PREFIX)
            if is_run and not reaches(asker.scope, queue, kind):
                raise NotFound(f"there is no group {ref}; `longshore groups` lists those there are")

    async def _check_schedule(self, asker: Asker, name: str) -> None:
        """Raises if a job that this schedule submits is out of reach."""
        found = await self._store.schedule(name)
        if found is not None and not _reaches_schedule(asker.scope, found.schedule):
            raise NotFound(
                f"there is no schedule '{name}'; `longshore schedules ls` lists those there are"
            )

    async def _check_replaced(self, asker: Asker, name: str) -> None:
        """Raises if the name is that of a schedule out of reach."""
        found = await self._store.schedule(name)
        if found is not None and not _reaches_schedule(asker.scope, found.schedule):
            raise NotAllowed(
                f"{asker.name} does not reach the schedule '{name}'; take another name"
            )


def _looks_into_arguments(request: m.Request) -> bool:
    match request:
        case m.ListJobs():
            return bool(request.wanted.args)
        case b.PlanBulk() | b.StartBulk():
            return bool(request.new.wanted.args)
        case _:
            return False


def _reaches_schedule(scope: Scope, schedule: Schedule) -> bool:
    """Whether all jobs that it submits are in reach."""
    new = schedule.new
    jobs = [node.job for node in new.group.nodes] if new.group is not None else [new.job]
    run = [job for job in jobs if job is not None and not job.kind.startswith(RESERVED_PREFIX)]
    return all(reaches(scope, job.queue, job.kind) for job in run)


def _check_queue(asker: Asker, queue: str) -> None:
    scope = asker.scope
    if not reaches_queue(scope, queue) or scope.kinds:
        raise NotAllowed(f"{asker.name} does not reach all jobs of queue '{queue}'")


def _check_actor(asker: Asker, type: str, key: str) -> None:
    if not reaches_actors(asker.scope, type):
        raise NotFound(
            f"there is no actor {type} '{key}'; `longshore actors` lists those there are"
        )


# what is shown


def shown_to(asker: Asker, request: m.Request, answer: Any) -> Any:
    """What OK carries in answer, without what is out of reach, and without what is hidden."""
    if not is_whole(asker.scope):
        answer = _within_reach(asker, request, answer)
    return hidden_from(asker, answer)


def _within_reach(asker: Asker, request: m.Request, answer: Any) -> Any:
    scope = asker.scope
    match answer:
        case JobPage(jobs=jobs):
            seen = tuple(job for job in jobs if reaches(scope, job.queue, job.kind))
            # A page with fewer jobs than it may have must say where to go on.
            is_full = isinstance(request, m.ListJobs) and len(jobs) >= request.wanted.limit > 0
            cut = len(seen) < len(jobs) and is_full
            return JobPage(seen, jobs[-1].number if cut else answer.stopped_at)
        case ActorPage():
            return structs.replace(
                answer,
                actors=tuple(one for one in answer.actors if reaches_actors(scope, one.type)),
            )
        case list():
            return [one for one in answer if _is_in_reach(scope, one)]
        case _:
            return answer


def _is_in_reach(scope: Scope, listed: Any) -> bool:
    match listed:
        case QueueView():
            return reaches_queue(scope, listed.name)
        case LaneView():
            return reaches(scope, listed.queue, listed.kind)
        case Schedule():
            return _reaches_schedule(scope, listed)
        case RunTime():
            return reaches_kind(scope, listed.kind)
        case _:
            return True


# the audit


def audit_entry(asker: Asker, request: m.Request) -> AuditEntry | None:
    """What the audit keeps of a request; None of one that changes nothing."""
    kind = type(request)
    action = _AUDITED.get(kind)
    if action is None and asker is not LOCAL:
        action = _AUDITED_IF_NAMED.get(kind)
    if action is None or getattr(request, "dry_run", False):
        return None
    if getattr(request, "paused", None) is False:
        action = _RESUMED[action]
    subject, detail = _subject(request)
    return AuditEntry(
        request=_id_of(request),
        principal=asker.name,
        action=action,
        subject=subject,
        fingerprint=_fingerprint(request),
        detail=detail,
    )


def _id_of(request: m.Request) -> UUID:
    match request:
        case m.SubmitGroup():
            return request.part.head.id
        case a.StartActors():
            return request.actors[0].id if request.actors else UUID(int=0)
        case t.CreateToken():
            return request.new.id
        case f.PublishUpload():
            return request.upload
        case _:
            id: UUID = getattr(request, "id")  # noqa: B009 - each that is audited has one
            return id


def _fingerprint(request: m.Request) -> bytes:
    """A hash of what is asked for: the same for each repeat, and each part, of one request."""
    match request:
        case m.SubmitGroup():
            asked: object = request.part.head
        case m.Prune():
            asked = structs.replace(request, rid=0, after=0, counted={})
        case _:
            asked = structs.replace(request, rid=0)
    return blake2b(_encode(asked), digest_size=16).digest()


def _subject(request: m.Request) -> tuple[str, str]:
    """What a request is about, and a little more, in words; no payload is in them."""
    match request:
        case m.Cancel() | m.Retry():
            count = len(request.jobs)
            return ", ".join(map(str, request.jobs)), f"{count} jobs" if count > 1 else ""
        case m.SubmitGroup():
            head = request.part.head
            return str(head.id), f"{head.name}, {head.jobs} jobs"
        case m.AddToGroup():
            return str(request.group), f"{len(request.nodes)} jobs"
        case m.CancelGroup():
            return str(request.group), request.prefix
        case m.RetryGroup() | m.RerunGroup():
            return str(request.group), ", ".join(request.keys)
        case m.OpenGate():
            return str(request.group), f"gate {request.key}"
        case m.PauseGroup():
            return str(request.group), ""
        case m.Drain():
            return ", ".join(request.workers), ""
        case m.Pause():
            return request.queue, ""
        case m.Prune():
            return ", ".join(request.states) or "all", _bounds(request)
        case _:
            return _subject_of_more(request)


def _subject_of_more(request: m.Request) -> tuple[str, str]:
    match request:
        case a.StartActors():
            return ", ".join(f"{one.type}/{one.key}" for one in request.actors), ""
        case a.PauseActor() | a.StopActor():
            return f"{request.type}/{request.key}", ""
        case a.EditActor():
            return f"{request.type}/{request.key}", f"version {request.version}"
        case a.SortMail():
            return f"{request.type}/{request.key}", f"{request.action} message {request.number}"
        case a.SortUndelivered():
            return str(request.message), "deliver again" if request.again else "drop"
        case ls.SetLimit():
            return request.pattern, bounds_words(request.concurrency, request.rate)
        case ls.RemoveLimit():
            return request.pattern, ""
        case t.CreateToken():
            new = request.new
            return new.name, f"{new.prefix}…, role {new.role}"
        case s.PutSchedule():
            return request.new.name, "replaced" if request.replace else ""
        case s.SyncSchedules():
            return request.app, f"{len(request.schedules)} schedules"
        case s.PauseSchedule():
            return request.name, request.note
        case s.BackfillSchedule():
            return request.name, f"{request.first.isoformat()} to {request.last.isoformat()}"
        case s.TriggerSchedule() | s.RemoveSchedule():
            return request.name, ""
        case b.StartBulk():
            # Without the search: there may be arguments in it.
            return str(request.new.id), action_words(request.new)
        case b.StopBulk():
            return str(request.bulk), ""
        case t.RevokeToken():
            return request.token, ""
        case f.CollectFiles():
            return "files", ""
        case f.RemoveVersions():
            return request.fileset, ", ".join(map(str, request.versions))
        case f.PublishUpload():
            return request.made.fileset, f"{request.made.files} files"
        case _:
            return "", ""


def _bounds(request: m.Prune) -> str:
    age = "" if request.older_than_s is None else f"older than {request.older_than_s:g} s"
    kept = "" if request.keep is None else f"all but {request.keep}"
    return ", ".join(one for one in (age, kept) if one)
