"""Web workers over HTTP: register, resign, report the end of a job."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from starlette.responses import Response

from longshore.client import jsonable
from longshore.core.access import Right
from longshore.core.signatures import FROM_SERVICE, is_signed
from longshore.core.web_workers import check_registration
from longshore.errors import InvalidInput, NotAllowed, NotFound, Unavailable, WrongState
from longshore.gateway.asking import asked_by, asking
from longshore.gateway.bodies import decoded
from longshore.gateway.operation import Call, answer
from longshore.gateway.problems import BadSignature
from longshore.gateway.service_client import SIGNATURE, TIME
from longshore.gateway.web_models import NewWebWorker, WebError, WebResult
from longshore.gateway.web_workers import WebWorkers
from longshore.model.job import JobError, Reason, Verdict
from longshore.model.reports import (
    FailureReport,
    ReleaseReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
)
from longshore.model.web_worker import WebRegistration, WebState, WebWorker
from longshore.payload.values import pack

WORKER: Final = "Longshore-Worker"
_REASONS: Final = {
    one.value: one
    for one in (
        Reason.RAISED,
        Reason.TIMED_OUT,
        Reason.INVALID_ARGUMENTS,
        Reason.INVALID_RESULT,
        Reason.UNKNOWN_KIND,
    )
}


def _web(call: Call) -> WebWorkers:
    if call.gateway.web is None:
        raise Unavailable("this gateway has no connection for workers, so it attends none")
    return call.gateway.web


# registrations


async def register(call: Call) -> Response:
    """Registers a service."""
    body = await call.body(NewWebWorker)
    said = WebRegistration(
        host=body.hostname,
        port=body.port,
        kinds=tuple(dict.fromkeys(body.handlers)),
        max_jobs=call.settings.web_max_jobs if body.max_jobs is None else body.max_jobs,
        target=body.target,
        instance=body.instance,
        principal=call.principal,
    )
    check_registration(said)
    web = _web(call)
    web.check_address(said.host)
    found = await call.connection.web.register(said)
    web.look()
    document = {
        "id": str(found.web_worker.id),
        "number": found.web_worker.number,
        "secret": await web.secret(found.web_worker),
        "ping_interval_s": call.settings.web_ping_interval_s,
        "existing": found.existing,
    }
    where = {"Location": f"/dispatcher/workers/{found.web_worker.id}"}
    return answer(document, 200 if found.existing else 201, where)


async def resign(call: Call) -> Response:
    """Ends the registration of a service."""
    try:
        id = UUID(call.name("id"))
    except ValueError:
        raise NotFound(f"there is no web worker {call.name('id')!r}") from None
    if SIGNATURE in call.request.headers or not await _is_admins(call):
        await _check_signature(call, id, b"")
    done = await call.connection.web.resign(id)
    _web(call).look()
    return answer({"id": str(id), "verdict": "resigned" if done else "already_ended"})


async def find(call: Call, name: str) -> WebWorker | None:
    """The service with this id, if there is one."""
    try:
        id = UUID(name)
    except ValueError:
        return None
    found = await call.connection.web.listed([id])
    return next((one for one in found if one.id == id), None)


def shown(web: WebWorker, seen_at: Mapping[UUID, datetime | None]) -> dict[str, Any]:
    """A service, in the words of the seed's schema."""
    said, pinged = web.registration, [web.pinged_at, seen_at.get(web.worker)]
    fields = {
        "id": web.id,
        "hostname": said.host,
        "port": said.port,
        "handlers": said.kinds,
        "maxJobs": said.max_jobs,
        "jobs": web.jobs,
        "lastPinged": max((at for at in pinged if at is not None), default=None),
        "failedPingCount": web.failed_pings,
        "lastError": web.last_error,
        "isResigned": web.state is WebState.RESIGNED,
        "isDead": web.state in (WebState.DEAD, WebState.REMOVED),
        "state": web.state,
        "number": web.number,
        "target": said.target,
        "instance": said.instance,
        "worker": web.worker,
        "gateway": web.gateway,
        "registered_at": web.registered_at,
    }
    plain: dict[str, Any] = jsonable.plain(fields)
    return plain


# results


async def take_result(call: Call) -> Response:
    """Takes the end of a job from the service that ran it."""
    data = await call.body_as(lambda data, is_lines: data)
    result = decoded(data, WebResult)
    try:
        job = UUID(call.name("id"))
    except ValueError:
        raise NotFound(f"there is no job {call.name('id')!r}; a result names it by id") from None
    web_worker = await _speaker(call, data)
    verdict = await _web(call).report(_report(job, result), web_worker, call.principal)
    if verdict is Verdict.STALE:
        raise WrongState(
            f"job {job} is not this worker's under token {result.token}: the result was not "
            "recorded; stop the job"
        )
    return answer({"id": str(job), "verdict": verdict.value})


def _report(job: UUID, result: WebResult) -> Report:
    token = _token(result.token)
    status = result.status or ("failed" if result.error is not None else "succeeded")
    match status:
        case "succeeded":
            return SuccessReport(job, token, result=_packed(result))
        case "failed":
            error = _error(result.error)
            made = JobError(_reason(error), error.message, error.type, error.traceback)
            after_s = result.after_s
            return FailureReport(job, token, made, final=error.final, retry_after_s=after_s)
        case "cancelled" | "released":
            # What is handed back is cancelled if somebody asked for that, and only then.
            return ReleaseReport(job, token)
        case "snoozed":
            return SnoozeReport(job, token, result.after_s or 0.0, result.note)
        case "skipped":
            return SkipReport(job, token, result.note)
    raise InvalidInput(
        f"status is {status!r}; it may be succeeded, failed, cancelled, released, "
        "snoozed or skipped"
    )


def _token(given: int | str) -> int:
    if isinstance(given, int):
        return given
    if given.isascii() and given.isdigit() and len(given) < 20 and int(given) < 2**63:
        return int(given)
    raise InvalidInput(f"token is {given!r}; send the number that came with the job")


def _packed(result: WebResult) -> bytes | None:
    if not result.raw:
        return pack(result.result, "the result")
    try:
        return b64decode(result.result, validate=True)
    except (TypeError, ValueError):
        raise InvalidInput("the result of a raw job is a text of base64") from None


def _error(given: WebError | str | None) -> WebError:
    if isinstance(given, WebError):
        return given
    return WebError(message=given or "the web worker gave no reason")


def _reason(error: WebError) -> Reason:
    reason = _REASONS.get(error.reason)
    if reason is None:
        raise InvalidInput(f"reason is {error.reason!r}; it may be {' or '.join(_REASONS)}")
    return reason


# signatures


async def _speaker(call: Call, body: bytes) -> UUID | None:
    """The service that speaks, if it says so or has to."""
    given = call.request.headers.get(WORKER, "")
    if not given:
        if call.settings.web_signatures:
            raise BadSignature(f"{WORKER} is missing: name the worker, and sign the request")
        return None
    try:
        id = UUID(given)
    except ValueError:
        raise BadSignature(
            f"{WORKER} is {given!r}; give the id that came with the secret"
        ) from None
    await _check_signature(call, id, body)
    return id


async def _is_admins(call: Call) -> bool:
    """Whether a request shows an admin's token: such a one has no service to sign for."""
    token = asking()
    if token is None:
        return False
    try:
        await call.gateway.askers.check(token, Right.ADMIN)
    except NotAllowed:
        return False
    return True


async def _check_signature(call: Call, id: UUID, body: bytes) -> None:
    """Raises unless a request is signed by a service, or signatures are not asked for."""
    headers, path = call.request.headers, call.request.url.path
    given, time = headers.get(SIGNATURE, ""), headers.get(TIME, "")
    if not given and not call.settings.web_signatures:
        return
    # For itself: a web worker may not list others.
    with asked_by(None):
        web = await find(call, str(id))
    if web is None:
        raise NotFound(f"there is no web worker {id}")
    if time.isascii() and time.isdigit() and len(time) < 15:
        secret, now = await _web(call).secret(web), call.gateway.utc()
        if is_signed(secret, given, FROM_SERVICE, call.request.method, path, int(time), body, now):
            return
    raise BadSignature(f"{SIGNATURE} does not fit to worker {id}, {TIME} and the body")
