"""Turns every struct into the JSON that `--json` prints, each field always there.

Times are RFC 3339 UTC with microseconds and `Z`, durations seconds, ids lower-case UUID text, bytes
base64. Arguments and results are shown as the values they hold.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from longshore.core.group_words import shown_state
from longshore.core.urls import HIDDEN
from longshore.core.usage import used_by
from longshore.model.callback import CALLBACK_KIND
from longshore.model.job import Ended, Job, JobState
from longshore.model.watcher import ActorWatcher, CallbackWatcher, ScheduleWatcher
from longshore.model.worker import QueueView, WorkerView
from longshore.payload.values import unpack
from longshore.wire.messages import DispatcherAnswer, SubmitAnswer


def time_text(at: datetime) -> str:
    """A time as all of Longshore writes it; one without a zone counts as UTC."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def plain(value: Any) -> Any:
    """The value in JSON's own types."""
    match value:
        case CallbackWatcher():
            headers = dict.fromkeys(value.headers, HIDDEN)
            return {"to": "callback", "url": value.url, "method": value.method, "headers": headers}
        case ActorWatcher():
            return {"to": "actor", **_fields(value)}
        case ScheduleWatcher():
            return {"to": "schedule", **_fields(value)}
        case Struct():
            return _fields(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case datetime():
            return time_text(value)
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case float() if not isfinite(value):
            return None
    return value


def _fields(value: Struct) -> dict[str, Any]:
    return {name: plain(getattr(value, name)) for name in value.__struct_fields__}


def arguments(shown: Job) -> Any:
    """The arguments of a job. What the headers of a callback hold is hidden: often it is a key."""
    value = payload(shown.args, raw=shown.options.raw)
    if shown.kind == CALLBACK_KIND and isinstance(value, dict) and "headers" in value:
        return {**value, "headers": dict.fromkeys(value["headers"], HIDDEN)}
    return value


def payload(data: bytes | None, *, raw: bool = False) -> Any:
    """The value of arguments or of a result; base64 if they are raw, or no value."""
    if data is None:
        return None
    if raw:
        return plain(data)
    try:
        return plain(unpack(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return plain(data)


def job(shown: Job, names: Mapping[UUID, str], key: str | None = None) -> dict[str, Any]:
    """A whole job; `names` are those of the workers that had it, `key` is its key in its group."""
    options = shown.options
    return {
        **brief(shown),
        "args": arguments(shown),
        "result": payload(shown.result, raw=options.raw),
        "history": plain(shown.history),
        "used": plain(used_by(shown)),
        "worker_name": names.get(shown.worker) if shown.worker else None,
        "key": key,
    }


def brief(shown: Job) -> dict[str, Any]:
    """A job as a list shows it: without arguments, result, history and logs.

    Jobs that run have their progress and step.
    """
    heavy = {"args", "result", "history", "options"}
    fields = {name: value for name, value in structs.asdict(shown).items() if name not in heavy}
    return {**plain(fields), "state": shown_state(shown).value, **plain(shown.options)}


def ended(answer: SubmitAnswer, outcome: Ended, *, raw: bool) -> dict[str, Any]:
    """A submitted job and its outcome."""
    return {
        **submitted(answer),
        "state": outcome.state.value,
        "result": payload(outcome.result, raw=raw),
        "error": plain(outcome.error),
    }


def submitted(answer: SubmitAnswer) -> dict[str, Any]:
    """A job that was accepted."""
    return {"id": str(answer.id), "number": answer.number, "existing": answer.existing}


def worker(view: WorkerView) -> dict[str, Any]:
    """A worker: what it says of itself, and what the dispatcher knows of it."""
    fields = structs.asdict(view)
    return {**plain(fields.pop("info")), "state": worker_state(view), **plain(fields)}


def worker_state(view: WorkerView) -> str:
    """The state of a worker, in a word."""
    if not view.alive:
        return "gone"
    if view.silent_s:
        return "silent"
    return "draining" if view.draining else "alive"


def dispatcher(answer: DispatcherAnswer) -> dict[str, Any]:
    """A dispatcher."""
    return {**plain(answer), "state": dispatcher_state(answer)}


def dispatcher_state(answer: DispatcherAnswer) -> str:
    """The state of a dispatcher, in a word."""
    return "alive" if answer.alive else "silent"


def queue(view: QueueView) -> dict[str, Any]:
    """A queue, with the number of its jobs in every state there is."""
    counts = {state.value: view.counts.get(state.value, 0) for state in JobState}
    return {**plain(view), "counts": counts}
