"""How values become columns, and rows values: the forms that every SQL store uses.

Times are whole microseconds since 1970, UTC. Options and errors are msgpack, so that a new field
needs no new column. A history is JSON, so that the database can append to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from longshore.core.lanes import body_hash, body_hashes, node_hash, node_hashes
from longshore.errors import Conflict, InvalidInput, Unavailable
from longshore.model.group import NOT_RUN, GroupPart, Node
from longshore.model.ids import derive_ids
from longshore.model.job import (
    HistoryEntry,
    Job,
    JobError,
    JobState,
    Options,
    Progress,
    Refused,
    Submission,
)
from longshore.model.log import unpack_line
from longshore.model.notice import Notice
from longshore.model.reports import OutboxNode
from longshore.model.watcher import Watcher
from longshore.model.web_worker import WebRegistration
from longshore.model.worker import QueueView, WorkerInfo, WorkerView
from longshore.payload.maps import grown_id

LARGEST_INT: Final = 2**63 - 1
ABANDONED: Final = "its submitter did not send the rest"
"""Who cancels a group that is not complete, for people."""
INT64: Final = range(-LARGEST_INT - 1, LARGEST_INT + 1)
"""The whole numbers that a database holds."""

NOT_RUN_LIST: Final = ", ".join(f"'{kind}'" for kind in sorted(NOT_RUN))
"""SQL for the kinds that no worker runs: maps, sub-groups and gates."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LATEST: Final = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_MAX_PRIORITY: Final = 2**15 - 1
_MIN_PRIORITY: Final = -(2**15)

_packer = msgspec.msgpack.Encoder()
_options = msgspec.msgpack.Decoder(Options)
_watchers = msgspec.msgpack.Decoder(tuple[Watcher, ...])
_error = msgspec.msgpack.Decoder(JobError)
_info = msgspec.msgpack.Decoder(WorkerInfo)
_progress = msgspec.msgpack.Decoder(Progress)
_registration = msgspec.msgpack.Decoder(WebRegistration)
_json = msgspec.json.Encoder()


class _Entry(Struct, array_like=True):
    state: JobState
    at: int
    by: str
    info: str
    request: str = ""
    """The request that opened a round with this entry."""


_history = msgspec.json.Decoder(list[_Entry])


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def micros(at: datetime) -> int:
    """A time as it is stored."""
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """A stored time as it is shown."""
    return _EPOCH + timedelta(microseconds=at)


def later(now: int, seconds: float) -> int:
    """The time this many seconds later; never before now, nor past the last that can be stored."""
    if seconds > 0:
        return min(now + round(seconds * 1e6), _LATEST) if seconds < 1e12 else _LATEST
    return now


def earlier(now: int, seconds: float | None) -> int | None:
    """The time this many seconds before; None if they are not known."""
    return None if seconds is None else now - round(seconds * 1e6)


def due_at(job: Submission, now: int) -> int | None:
    """When a job may start, if its submitter said so. A delay wins over a time."""
    if job.delay_s is not None:
        return later(now, job.delay_s)
    return None if job.run_at is None else micros(job.run_at)


def deadline_at(job: Submission, due: int | None, now: int) -> int | None:
    """By when a new job must begin, if it may expire; `due` is when it may start."""
    expires_s = job.options.expires_s
    return None if expires_s is None else later(max(now, due or now), expires_s)


def unstorable(job: Submission, now: int) -> str | None:
    """Why no database can store a submission, in words; None if it is sound."""
    if (
        "\0" in job.kind
        or "\0" in job.queue
        or "\0" in job.target
        or "\0" in (job.unique_key or "")
    ):
        return f"its {_field_with_nul(job)} holds a NUL character"
    if not _MIN_PRIORITY <= job.priority <= _MAX_PRIORITY:
        return f"its priority {job.priority} is not between {_MIN_PRIORITY} and {_MAX_PRIORITY}"
    if job.run_at is not None and job.run_at.tzinfo is None:
        return "its run_at has no time zone"
    if job.delay_s is not None and not _makes_a_time(now, job.delay_s):
        return f"its delay_s of {job.delay_s} is past every calendar"
    options = job.options
    if options.timeout_s is not None and not _makes_a_time(now, options.timeout_s):
        return f"its timeout_s of {options.timeout_s} is past every calendar"
    if options.expires_s is not None and not _makes_a_time(now, options.expires_s):
        return f"its expires_s of {options.expires_s} is past every calendar"
    return None


def _field_with_nul(job: Submission) -> str:
    return next(
        name
        for name in ("kind", "queue", "target", "unique_key")
        if "\0" in (getattr(job, name) or "")
    )


def _makes_a_time(now: int, seconds: float) -> bool:
    return abs(seconds) < (_LATEST - now) / 1e6


def body_or_why(job: Submission, now: int) -> int | str:
    """A submission's body hash, or why no database can store it."""
    why = unstorable(job, now)
    if why is not None:
        return why
    try:
        return body_hash(job)
    except (UnicodeEncodeError, OverflowError) as error:
        return str(error)


def bodies_or_whys(jobs: Sequence[Submission], now: int) -> list[int | str]:
    """What `body_or_why` says of each job."""
    try:
        bodies = body_hashes(jobs)
    except (UnicodeEncodeError, OverflowError):
        return [body_or_why(job, now) for job in jobs]
    whys = [unstorable(job, now) for job in jobs]
    return [body if why is None else why for body, why in zip(bodies, whys, strict=True)]


def not_accepted(id: UUID, why: str) -> Refused:
    """The answer to a submission that cannot be stored."""
    message = f"job {id} was not accepted: {why}; correct it and submit again"
    return Refused(id, InvalidInput.code, message)


def in_conflict(id: UUID) -> Refused:
    """The answer to a submission whose id another job has."""
    message = f"job {id} exists with another body; give a new job a new id"
    return Refused(id, Conflict.code, message)


def group_conflict(id: UUID) -> Refused:
    """The answer to a part of a group that differs from what is stored under its id."""
    message = f"group {id} exists and differs from this one; give a new group a new id"
    return Refused(id, Conflict.code, message)


def node_not_accepted(id: UUID, key: str, why: str) -> Refused:
    """The answer to a group with a node that cannot be stored."""
    message = f"group {id} was not accepted: of job '{key}', {why}; correct it and submit again"
    return Refused(id, InvalidInput.code, message)


def held_by_staging(job: Submission, group: UUID) -> Refused:
    """The answer to a job whose unique key a group has that may still come to nothing."""
    message = f"job {job.id} was not accepted: {_staging(job, group)}"
    return Refused(job.id, Unavailable.code, message)


def _staging(job: Submission, group: UUID) -> str:
    return (
        f"its unique key '{job.unique_key}' belongs to group {group}, which is still being "
        "submitted; try again in a moment"
    )


def key_taken(id: UUID, key: str, job: Submission, staging: UUID | None = None) -> Refused:
    """The answer to a group with a job whose id or unique key a live job has.

    `staging` is the group of that live job, if it is another one that is not whole yet.
    """
    if staging is not None and staging != id:
        message = f"group {id} was not accepted: of job '{key}', {_staging(job, staging)}"
        return Refused(id, Unavailable.code, message)
    what = f"unique key '{job.unique_key}'" if job.unique_key is not None else f"id {job.id}"
    message = f"group {id} was not accepted: another job has the {what} of its job '{key}'"
    return Refused(id, Conflict.code, message)


def unique_key_taken(key: str | None) -> str:
    """Why a group is not retried: a live job has the unique key of one of its jobs."""
    return f"another job has the unique key '{key}' by now; wait until it has ended, or cancel it"


class NodeItem(NamedTuple):
    """A node of a group, where it is, and what tells it from another: its own and its job's."""

    node: Node
    place: int
    parents: tuple[int, ...]
    body: int
    job_body: int
    rank: int | None = None
    """The place in the order of claims that it inherits; None for one that its number gives."""


def node_items(part: GroupPart) -> list[NodeItem] | Refused:
    """The nodes of a part as they are stored; a refusal if one of them cannot be."""
    nodes, group = part.nodes, part.head.id
    places = range(part.first, part.first + len(nodes))
    found = bodies_or_whys([node.job for node in nodes], micros(utc_now()))
    bodies: list[int] = []
    parents: list[tuple[int, ...]] = []
    for place, node, body, id in zip(places, nodes, found, derive_ids(group, places), strict=True):
        if isinstance(body, str):
            return node_not_accepted(group, node.key, body)
        if node.job.id != id:
            return node_not_accepted(group, node.key, "its id does not follow from its place")
        after = tuple(sorted(set(node.after))) if len(node.after) > 1 else node.after
        if "\0" in node.key or (after and not 0 <= after[0] <= after[-1] < place):
            return node_not_accepted(group, node.key, "its key or what it depends on is not valid")
        bodies.append(body)
        parents.append(after)
    hashes = node_hashes(nodes, parents, bodies)
    return list(map(NodeItem, nodes, places, parents, hashes, bodies))


def wrong_scopes(
    group: UUID, members: Mapping[int, str], subgroups: Mapping[int, int | None]
) -> Refused | None:
    """The refusal of a group in which a scope is no sub-group, or a sub-group is in itself.

    `members` has the key of a node in each scope. `subgroups` has the place of each sub-group, and
    the scope that it is in itself.
    """
    sound: set[int] = set()
    for scope, key in sorted(members.items()):
        if scope not in subgroups:
            why = f"its scope {scope} is not the place of a sub-group"
            return node_not_accepted(group, key, why)
        path: set[int] = set()
        around: int | None = scope
        while around is not None and around not in sound:
            if around in path:
                return node_not_accepted(group, key, "its sub-group is in its own scope")
            path.add(around)
            around = subgroups.get(around)
        sound |= path
    return None


class Adder(NamedTuple):
    """The node that others are added by, in a round of its job.

    What it adds gets its `rank`: so growth of an older group comes before younger jobs.
    """

    job: UUID
    round: int
    key: str
    place: int
    rank: int


def grown_items(
    adder: Adder, nodes: Sequence[OutboxNode], first: int, index: int = 0
) -> list[NodeItem] | str:
    """Added nodes as they are stored, from place `first` on; or why one of them cannot be.

    `index` is that of the first of them, among all that the adder adds.
    """
    now = micros(utc_now())
    items = []
    for place, added in enumerate(nodes, first):
        id = grown_id(adder.job, adder.round, index + place - first)
        job = structs.replace(added.job, id=id)
        body = body_or_why(job, now)
        if clean(added.key) != added.key or any(not 0 <= at < place - first for at in added.after):
            body = "its key or what it depends on is not valid"
        if isinstance(body, str):
            return f"it adds the job '{clean(added.key)}', and {body}"
        parents = tuple(sorted({first + at for at in added.after}))
        scope = None if added.detached else adder.place
        node = Node(f"{adder.key}/{added.key}", job, parents, added.on, scope)
        items.append(NodeItem(node, place, parents, node_hash(node, body), body, adder.rank))
    return items


def grown_taken(node: Node) -> str:
    """Why an added node cannot be stored: another job has its id, key or unique key."""
    unique_key = node.job.unique_key
    what = "key in the group" if unique_key is None else f"unique key '{unique_key}'"
    return f"it adds the job '{node.key}', and another job has its {what}"


def other_size(sha256: bytes, size: int) -> str:
    """What is wrong with a manifest that says another size of a blob than it has."""
    return f"blob {sha256.hex()} has {size:,} bytes, not as many as the manifest says"


def clean(text: str) -> str:
    """The text without the characters that a database refuses."""
    return text.replace("\0", "").encode(errors="replace").decode()


@lru_cache(maxsize=1024)
def history_entry(
    state: JobState, at: int, by: str = "", info: str = "", request: UUID | None = None
) -> str:
    """One entry of a history, as JSON. The jobs of a batch mostly share one, so it is cached."""
    if not (by.isascii() and info.isascii()) or "\0" in by or "\0" in info:
        by, info = clean(by), clean(info)
    entry = (state, at, by, info) if request is None else (state, at, by, info, request)
    return _json.encode(entry).decode()


def entry_end(request: UUID) -> str:
    """The end of the one history entry that opened a round for this request."""
    return f'"{request}"]'


def read_history(text: str) -> tuple[HistoryEntry, ...]:
    """A stored history as it is shown."""
    return tuple(
        HistoryEntry(entry.state, moment(entry.at), entry.by, entry.info)
        for entry in _history.decode(text)
    )


def pack_options(options: Options) -> bytes:
    """Options as they are stored."""
    return _packer.encode(options)


@lru_cache(maxsize=1024)
def unpack_options(data: bytes) -> Options:
    """Stored options. Jobs of a kind mostly share them, so they are cached."""
    return _options.decode(data)


def pack_watchers(watchers: tuple[Watcher, ...]) -> bytes | None:
    """The watchers of a group as they are stored."""
    return _packer.encode(watchers) if watchers else None


def unpack_watchers(data: bytes | None) -> tuple[Watcher, ...]:
    """The watchers of a group."""
    return () if data is None else _watchers.decode(data)


def read_notice(
    subject: UUID,
    is_group: bool,
    round: int,
    state: JobState,
    options: bytes,
    error: bytes | None,
    result: bytes | None,
) -> Notice:
    """A notice from the columns of its row."""
    how = subject, round, state, result, unpack_error(error)
    if is_group:
        return Notice(*how, _watchers.decode(options), is_group=True)
    known = _options.decode(options)
    return Notice(*how, known.watchers, raw=known.raw)


def pack_error(error: JobError | None) -> bytes | None:
    """An error as it is stored, whatever a job put into its message."""
    if error is None:
        return None
    try:
        return _packer.encode(error)
    except UnicodeEncodeError:
        texts = (clean(error.message), clean(error.type), clean(error.traceback))
        return _packer.encode(JobError(error.reason, *texts))


def unpack_error(data: bytes | None) -> JobError | None:
    """A stored error."""
    return None if data is None else _error.decode(data)


def pack_info(info: WorkerInfo) -> bytes:
    """What a worker said of itself, as it is stored."""
    return _packer.encode(info)


def unpack_info(data: bytes) -> WorkerInfo:
    """What a worker said of itself."""
    return _info.decode(data)


def pack_registration(said: WebRegistration) -> bytes:
    """What a service said of itself, as it is stored."""
    return _packer.encode(said)


def unpack_registration(data: bytes) -> WebRegistration:
    """What a service said of itself."""
    return _registration.decode(data)


def unpack_progress(data: bytes | None) -> Progress | None:
    """Stored progress; None if there is none, or if it cannot be read."""
    try:
        return None if data is None else _progress.decode(data)
    except msgspec.DecodeError:
        return None


def unpack_step(data: bytes | None) -> str | None:
    """A stored step; None if there is none."""
    return None if data is None else unpack_line(bytes(data)).text


# what is shown


def read_job(state: JobState, /, **columns: Any) -> Job:
    """A job from its columns. A list leaves out those that may be large."""
    columns = {"args": b"", "result": None, "history": "[]", **columns}
    columns |= {
        "state": state,
        "options": unpack_options(columns["options"]),
        "error": unpack_error(columns["error"]),
        "history": read_history(columns["history"]),
        "progress": unpack_progress(columns["progress"]),
        "step": unpack_step(columns["step"]),
    }
    return Job(**columns)


def read_worker(**columns: Any) -> WorkerView:
    """A worker from its columns."""
    columns |= {
        "info": unpack_info(columns["info"]),
        "alive": bool(columns["alive"]),
        "draining": bool(columns["draining"]),
        "running": msgspec.json.decode(columns["running"]),
        "shapes": msgspec.json.decode(columns["shapes"]),
    }
    return WorkerView(**columns)


def queue_views(
    totals: Iterable[tuple[str, str | None, int | None]],
    paused: Mapping[str, bool],
    waits: Iterable[tuple[str, str, float]],
    paused_at: Mapping[str, datetime],
) -> list[QueueView]:
    """Queues by name: from their totals by state, and from those that were ever paused."""
    waited: dict[str, dict[str, float]] = {}
    for queue, cause, s in waits:
        waited.setdefault(queue, {})[cause] = s
    counts: dict[str, dict[str, int]] = {name: {} for name in paused}
    for name, state, total in totals:
        states = counts.setdefault(name, {})
        if state is not None and total:
            states[state] = total
    return [
        QueueView(
            name, bool(paused.get(name)), counts[name], waited.get(name, {}), paused_at.get(name)
        )
        for name in sorted(counts)
    ]


def log_bounds(
    token: int | None, after: tuple[int, int], most: int
) -> tuple[int, int, int, int, int]:
    """Which entries of a log to read: first and last token, a token and entry to begin after, most.

    Each is a number that any database takes.
    """
    first, last = (after[0], LARGEST_INT) if token is None else (token, token)
    return (
        _within(first),
        _within(last),
        _within(after[0]),
        _within(after[1]),
        max(0, _within(most)),
    )


def _within(number: int) -> int:
    return max(-1, min(number, LARGEST_INT))
