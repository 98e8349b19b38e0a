"""Jobs over HTTP: submit, list, show, explain, wait, cancel, run again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from starlette.responses import Response

from longshore.client import etcdq, jsonable
from longshore.client.callbacks import callbacks_of
from longshore.client.described import described
from longshore.client.kind import Terms
from longshore.client.searching import searched
from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST, TERMINAL
from longshore.core.limits import MAX_LABELS, MAX_SEARCH_CHARS
from longshore.core.tracing import with_trace
from longshore.core.usage import used_by
from longshore.errors import (
    Conflict,
    InvalidInput,
    LongshoreError,
    NotFound,
    WrongState,
    from_code,
)
from longshore.gateway.asking import asked_by, asking
from longshore.gateway.batches import fingerprint, guard_of, of_batch
from longshore.gateway.bodies import decoded, lines
from longshore.gateway.ids import has_key, new_id
from longshore.gateway.models import Label, NewJob, NewJobs, Number, Seconds
from longshore.gateway.operation import Call, answer
from longshore.gateway.problems import KeyReused
from longshore.model.ids import parse_ref
from longshore.model.job import CancelVerdict, Job, JobState, RetryVerdict, Submission
from longshore.model.program import CONTAINER_KIND
from longshore.payload import etcdq as documents
from longshore.payload.values import pack
from longshore.wire.messages import SubmitAnswer

_Moment = Annotated[datetime, Meta(tz=True)]
MOST_ENTRIES: Final = HISTORY_FIRST + HISTORY_LAST


class SubmitQuery(Struct, frozen=True):
    """How to submit."""

    strict: bool = False
    """Refuse kinds that no live worker serves."""
    format: Literal["etcdq"] | None = None
    """The body is a job of the Etcd Job Queue."""


class ShowQuery(Struct, frozen=True):
    """How to show a job."""

    format: Literal["etcdq"] | None = None
    """As a document of the Etcd Job Queue, if it is a container."""


class JobsQuery(Struct, frozen=True):
    """Which jobs to list."""

    q: Annotated[str, Meta(max_length=MAX_SEARCH_CHARS)] = ""
    """A search, such as `state:failed arg.tenant:acme error:timeout`; other parameters go before
    its terms."""
    state: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    group: str | None = None
    """The id or the number of a group."""
    worker: UUID | None = None
    label: Annotated[tuple[Label, ...], Meta(max_length=MAX_LABELS)] = ()
    since: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None = None
    """Only jobs submitted since then."""
    before: Number | None = None
    """Only jobs with a lower number: the cursor."""
    limit: Annotated[int, Meta(ge=1)] = 50


class WaitQuery(Struct, frozen=True):
    """How long to wait."""

    wait_s: Seconds | None = None


# submitting


class _Wanted(Struct, frozen=True):
    """The jobs of a request, and whether they came as a list."""

    jobs: Sequence[NewJob]
    is_list: bool


class _IsList(Struct, frozen=True):
    jobs: Any | UnsetType = UNSET


_OPTIONS: Final = tuple(
    name for name in NewJob.__struct_fields__ if name not in ("kind", "args", "data", "id")
)


_IN_PARTS: Final = ("callback", "limit", "debounce")


async def submit(call: Call) -> Response:
    """Submits one job, or many. The first one tells whether the request is a repeat."""
    query = call.query(SubmitQuery)
    wanted = await call.body_as(_wanted if query.format is None else _wanted_container)
    terms = await call.gateway.kinds.terms_of({job.kind for job in wanted.jobs})
    batch = fingerprint(wanted.jobs) if wanted.is_list and has_key() else ""
    guard = guard_of(wanted.jobs) if batch else None
    ids = _ids(wanted.jobs, batch, guard)
    jobs = [
        _placed(place if wanted.is_list else None, job, id, terms[job.kind])
        for place, (job, id) in enumerate(zip(wanted.jobs, ids, strict=True))
    ]
    jobs = [with_trace(job, call.traceparent) for job in jobs]
    first = guard or 0
    is_repeat = await _is_there(call, wanted.jobs[first], ids[first])
    if guard is None:
        answers = await _send(call, wanted.jobs, jobs, query.strict)
    else:
        answers = await _send_guarded(call, wanted.jobs, jobs, query.strict, guard, batch)
    refused = [one for one in answers if one.code]
    if len(refused) == len(answers):
        raise from_code(refused[0].code, refused[0].message)
    status = 207 if refused else 200 if is_repeat else 201
    if wanted.is_list:
        return answer({"jobs": [_submitted(one) for one in answers]}, status)
    where = {"Location": f"/dispatcher/jobs/{answers[0].id}"}
    return answer(_submitted(answers[0]), status, where)


def _ids(wanted: Sequence[NewJob], batch: str, guard: int | None) -> list[UUID]:
    """The ids of jobs. That of the guard follows from the key alone, so it is always found."""
    guard_id = new_id() if guard is not None else None
    ids = [new_id(batch.encode()) if job.id is UNSET else job.id for job in wanted]
    if guard is not None and guard_id is not None:
        ids[guard] = guard_id
    return ids


def _wanted(data: bytes, is_lines: bool) -> _Wanted:
    if is_lines:
        jobs = [job for _, job in lines(data, NewJob)]
        if not jobs:
            raise InvalidInput("the body has no line with a job; send a JSON object on each line")
        return _Wanted(jobs, True)
    if decoded(data, _IsList).jobs is not UNSET:
        return _Wanted(decoded(data, NewJobs).jobs, True)
    return _Wanted([decoded(data, NewJob)], False)


def _wanted_container(data: bytes, is_lines: bool) -> _Wanted:
    if is_lines:
        raise InvalidInput("a document of the Etcd Job Queue is one job; send it as JSON")
    args = documents.arguments(documents.read_job(data))
    return _Wanted([NewJob(kind=CONTAINER_KIND, args=args)], False)


def _placed(place: int | None, job: NewJob, id: UUID, terms: Terms) -> Submission:
    """The job to submit; what is wrong in a list is raised with its place."""
    try:
        return _submission(job, id, terms)
    except LongshoreError as error:
        if place is None:
            raise
        raise from_code(error.code, f"jobs[{place}]: {error}") from None


def _submission(job: NewJob, id: UUID, terms: Terms) -> Submission:
    given = {name: getattr(job, name) for name in _OPTIONS}
    chosen = {name: _option(name, value) for name, value in given.items() if value is not UNSET}
    if job.data is UNSET:
        args = pack(job.args, f"the arguments of job '{job.kind}'")
        return terms.but(**chosen).submission(id, job.kind, args)
    if job.args:
        raise InvalidInput(f"job '{job.kind}' has data, so it is raw; leave out args")
    return terms.but(**chosen).submission(id, job.kind, job.data, raw=True)


def _option(name: str, value: object) -> object:
    return described(name, msgspec.to_builtins(value)) if name in _IN_PARTS else value


async def _is_there(call: Call, job: NewJob, id: UUID) -> bool:
    """Whether a job that its submitter may have submitted before is stored."""
    if job.id is UNSET and not has_key():
        return False
    try:
        return bool(await call.connection.job(id))
    except NotFound:
        return False


async def _send_guarded(
    call: Call,
    wanted: Sequence[NewJob],
    jobs: Sequence[Submission],
    strict: bool,
    guard: int,
    batch: str,
) -> list[SubmitAnswer]:
    """Submits the guard of a batch, and the others only if it is not another batch's."""
    [told] = await _send(call, [wanted[guard]], [of_batch(jobs[guard], batch)], strict, batch)
    others = [place for place in range(len(jobs)) if place != guard]
    if not others:
        return [told]
    rest = await _send(call, [wanted[n] for n in others], [jobs[n] for n in others], strict)
    return [*rest[:guard], told, *rest[guard:]]


async def _send(
    call: Call,
    wanted: Sequence[NewJob],
    jobs: Sequence[Submission],
    strict: bool,
    batch: str = "",
) -> list[SubmitAnswer]:
    answers = await call.gateway.submits.submit(jobs, strict)
    return [
        await _again(call, job, one, batch) if one.code == Conflict.code else one
        for job, one in zip(wanted, answers, strict=True)
    ]


async def _again(call: Call, job: NewJob, refused: SubmitAnswer, batch: str) -> SubmitAnswer:
    """Submits a job anew whose id is known, on the terms that it got the first time.

    What its app declares may have changed since then; what the request says must be the same.
    """
    try:
        stored = await call.connection.job(refused.id)
    except NotFound:
        return refused  # it is there, and out of this token's reach
    again = of_batch(_submission(job, stored.id, Terms.of_job(stored)), batch)
    [found] = await call.connection.submit((again,))
    if found.code == Conflict.code and job.id is UNSET:
        raise KeyReused(
            f"this Idempotency-Key made job {stored.number} before, with another body; give a new "
            "request a new key"
        )
    return found


def _submitted(one: SubmitAnswer) -> dict[str, Any]:
    if one.code:
        return {"id": str(one.id), "code": one.code, "message": one.message}
    return jsonable.submitted(one)


# looking


async def list_jobs(call: Call) -> Response:
    """Lists jobs, newest first."""
    query = call.query(JobsQuery)
    limit = min(query.limit, call.settings.max_page)
    group = None if query.group is None else parse_ref(query.group, "group")
    if isinstance(group, int):
        group = (await call.connection.group(group)).id
    found = await searched(call.connection, query.q, datetime.now(UTC), query.before, limit)
    said = {
        "states": query.state,
        "kind": query.kind,
        "queue": query.queue,
        "worker": query.worker,
        "labels": query.label,
        "since": None if query.since is None else moment(query.since),
        "group": group,
    }
    wanted = structs.replace(found, **{name: value for name, value in said.items() if value})
    page = await call.connection.jobs(wanted)
    after = page.jobs[-1].number if len(page.jobs) == limit else page.stopped_at
    document = {"jobs": [jsonable.brief(job) for job in page.jobs], "next": after}
    return answer(document, headers=None if after is None else call.next_link(before=after))


def moment(text: str) -> datetime:
    """The time that a parameter names."""
    try:
        return msgspec.convert(text, _Moment)
    except msgspec.ValidationError:
        words = f"since is {text[:80]!r}; give a time with its zone, like 2026-01-31T12:00:00Z"
        raise InvalidInput(words) from None


async def show_job(call: Call) -> Response:
    """Shows a whole job."""
    job = await call.connection.job(call.ref("job"))
    if call.query(ShowQuery).format is not None:
        return answer(await etcdq.shown_job(call.connection, job))
    how = job.id, job.round, job.options.watchers
    calls = await callbacks_of(call.connection, *how, ended=job.state in TERMINAL)
    return answer({**shown(job), "callbacks": jsonable.plain(calls)})


def shown(job: Job) -> dict[str, Any]:
    """A whole job as JSON."""
    raw = job.options.raw
    return {
        **jsonable.brief(job),
        "args": jsonable.arguments(job),
        "result": jsonable.payload(job.result, raw=raw),
        "history": jsonable.plain(job.history),
        "used": jsonable.plain(used_by(job)),
    }


async def explain(call: Call) -> Response:
    """Says why a job is where it is."""
    return answer(jsonable.plain(await call.connection.why(call.ref("job"))))


async def show_history(call: Call) -> Response:
    """Shows how a job's state changed."""
    job = await call.connection.job(call.ref("job"))
    return answer(
        {
            "id": str(job.id),
            "number": job.number,
            "state": job.state.value,
            "history": jsonable.plain(job.history),
            "is_cut": is_cut(job),
        }
    )


def is_cut(job: Job) -> bool:
    """Whether entries may be missing in a job's history, after the first few."""
    return len(job.history) >= MOST_ENTRIES


async def show_result(call: Call) -> Response:
    """Shows how a job ended; waits for that, if it is asked to."""
    job = await call.connection.job(call.ref("job"))
    wait_s = call.wait_s(call.query(WaitQuery).wait_s)
    if job.state not in TERMINAL and wait_s:
        with asked_by(None):
            # All who wait share their requests. What this one may see, it has asked above.
            ended = await call.unless_gone(call.gateway.outcomes.ended(job.id, wait_s))
        if ended is not None and asking() is not None:
            job = await call.connection.job(job.id)
        elif ended is not None:
            job = structs.replace(job, state=ended.state, result=ended.result, error=ended.error)
    headers = call.applied(wait_s)
    document = {"id": str(job.id), "number": job.number, "state": job.state.value}
    if job.state not in TERMINAL:
        return answer(document, 202, headers)
    result = jsonable.payload(job.result, raw=job.options.raw)
    return answer({**document, "result": result, "error": jsonable.plain(job.error)}, 200, headers)


# changing


async def cancel(call: Call) -> Response:
    """Cancels a job."""
    [done] = await call.connection.cancel([call.ref("job")])
    if done.verdict is CancelVerdict.NOT_FOUND:
        raise NotFound(f"there is no job {done.job}")
    status = 202 if done.verdict is CancelVerdict.CANCELLING else 200
    return answer({"id": str(done.id), "verdict": done.verdict.value}, status)


_CANNOT_RETRY: Final = {
    RetryVerdict.NOT_ENDED: "has not ended: cancel it first, or wait",
    RetryVerdict.SUCCEEDED: "succeeded: submit a new one to run it again",
    RetryVerdict.UNIQUE_KEY_TAKEN: "cannot run: another job with its unique key has not ended",
    RetryVerdict.IN_GROUP: "belongs to a group: retry the group, with its key",
}


async def retry(call: Call) -> Response:
    """Runs a job again that ended without success."""
    [done] = await call.connection.retry([call.ref("job")])
    if done.verdict is RetryVerdict.NOT_FOUND:
        raise NotFound(f"there is no job {done.job}")
    if done.verdict is not RetryVerdict.RETRIED:
        raise WrongState(f"job {done.job} {_CANNOT_RETRY[done.verdict]}")
    return answer({"id": str(done.id), "verdict": done.verdict.value})
