"""Makes the jobs that tell web addresses of the end of a job or a group.

Their bodies are fixed here, from the notice: whatever happens to the job later, each attempt sends
the same bytes under the same id.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, structs

from longshore.core.urls import HIDDEN
from longshore.core.webhooks import callback_key
from longshore.model.attempt import Attempt
from longshore.model.callback import (
    CALLBACK_KIND,
    CALLBACK_QUEUE,
    Callback,
    CallbackTerms,
    Subject,
)
from longshore.model.ids import watched_id
from longshore.model.job import Job, JobError, Submission
from longshore.model.notice import Notice
from longshore.model.watcher import CallbackWatcher
from longshore.payload.values import unpack

WITH_BODY: Final = frozenset({"POST", "PUT"})
"""The methods whose requests have a body. Others say what happened by their URL alone."""

_packer: Final = msgspec.msgpack.Encoder()
_reader: Final = msgspec.msgpack.Decoder(Callback)
_json: Final = msgspec.json.Encoder()


def has_callbacks(notice: Notice) -> bool:
    """Whether web addresses are to hear of an end."""
    return any(isinstance(one, CallbackWatcher) for one in notice.watchers)


def callback_jobs(
    notice: Notice, subject: Subject | None, at: datetime, terms: CallbackTerms
) -> Iterator[Submission]:
    """The jobs that tell the web addresses among the watchers, one for each.

    `subject` is None if the job or group is gone. `at` is when it ended.
    """
    body = _body(notice, subject, at, terms.max_bytes) if has_callbacks(notice) else b""
    for place, watcher in enumerate(notice.watchers):
        if isinstance(watcher, CallbackWatcher):
            callback = Callback(
                url=watcher.url,
                method=watcher.method,
                headers=watcher.headers,
                body=body.decode() if watcher.method in WITH_BODY else "",
                event=event_of(notice),
                subject=notice.subject,
                subject_number=None if subject is None else subject.number,
                is_group=notice.is_group,
                round=notice.round,
            )
            yield Submission(
                watched_id(notice.subject, notice.round, place),
                CALLBACK_KIND,
                _packer.encode(callback),
                queue=CALLBACK_QUEUE,
                options=terms.options,
            )


def event_of(notice: Notice) -> str:
    """What happened, as `type` of the body says it."""
    return f"{'group' if notice.is_group else 'job'}.{notice.state.value}"


def _body(notice: Notice, subject: Subject | None, at: datetime, most: int) -> bytes:
    """The body of a callback. What makes it too large is left out, and it says so."""
    data: dict[str, Any] = {"id": str(notice.subject), "round": notice.round}
    if subject is not None:
        data["number"] = subject.number
        data["name" if notice.is_group else "kind"] = subject.name
    data["state"] = notice.state.value
    if not notice.is_group:
        data |= _outcome(notice)
    whole = _document(notice, at, data)
    if len(whole) <= most:
        return whole
    size, error = len(notice.result or b""), notice.error
    data |= {"result": None, "left_out": f"the result, of {size:,} bytes"}
    if error is not None:
        data["error"] = structs.replace(error, traceback="", message=error.message[:1000])
        data["left_out"] = "the traceback of the error"
    return _document(notice, at, data)


def _document(notice: Notice, at: datetime, data: dict[str, Any]) -> bytes:
    when = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return _json.encode({"type": event_of(notice), "timestamp": when, "data": data})


def _outcome(notice: Notice) -> dict[str, Any]:
    return {"result": _as_json(notice.result, raw=notice.raw), "error": _error(notice.error)}


def _error(error: JobError | None) -> dict[str, object] | None:
    return None if error is None else structs.asdict(error)


def _as_json(data: bytes | None, *, raw: bool) -> Any:
    """A result in JSON; base64 if it is raw, or no value."""
    if data is None:
        return None
    if not raw:
        try:
            return Raw(_json.encode(unpack(data)))
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, ValueError):
            pass
    return b64encode(data).decode()


# what becomes of the jobs


def read_callback(args: bytes) -> Callback:
    """What a callback's job gets."""
    return _reader.decode(args)


def with_key(attempt: Attempt, secret: bytes) -> Attempt:
    """An attempt at a callback as its gateway gets it: with the key that signs it."""
    callback = structs.replace(read_callback(attempt.args), key=callback_key(secret))
    return structs.replace(attempt, args=_packer.encode(callback))


def is_callback(attempt: Attempt) -> bool:
    """Whether this is an attempt at a callback."""
    return attempt.kind == CALLBACK_KIND


def callback_of(job: Job) -> Callback | None:
    """What a callback's job does; None if the job is none."""
    if job.kind != CALLBACK_KIND:
        return None
    return read_callback(job.args)


def without_headers(job: Job) -> Job:
    """A job as it is shown to who may not see what the headers of callbacks hold."""
    if job.kind != CALLBACK_KIND or not job.args:  # a list has no arguments
        return job
    callback = read_callback(job.args)
    hidden = structs.replace(callback, headers=dict.fromkeys(callback.headers, HIDDEN))
    return structs.replace(job, args=_packer.encode(hidden))
