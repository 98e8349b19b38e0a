"""What is hidden from whom: payloads, and what the headers of callbacks hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args
from uuid import UUID

import msgspec
import pytest
from msgspec import inspect, structs

from longshore.core.access import LOCAL, Asker
from longshore.core.urls import HIDDEN
from longshore.dispatcher.access import shown_to
from longshore.model.access import Role, Scope
from longshore.model.callback import CALLBACK_KIND, Callback
from longshore.model.job import Job, JobPage
from longshore.model.run_time import RunTime
from longshore.payload.callback_jobs import read_callback
from longshore.wire import actor_messages as a
from longshore.wire import messages as m
from longshore.wire.file_messages import BlobRequest
from longshore.wire.web_messages import WEB_ANSWERS

SECRET = b"secret"
READER = Asker("token:dash", Role.READ)
BLIND = Asker("token:blind", Role.SUBMIT, Scope(payloads=False))
SUBMITTER = Asker("token:shop", Role.SUBMIT)
OTHERWISE = {m.ReadLogs, *WEB_ANSWERS, *get_args(BlobRequest)}
"""Logs and files are refused to who sees no payloads. What gateways ask is for gateways."""
DECLARED = {m.ListWorkers, m.ShowKind}
"""What workers declare of kinds: who starts an actor needs the job that hears of its commits."""


HASHES = {"fingerprint", "sha256", "manifest"}
"""A hash is no payload."""


def full(type: inspect.Type, *, header: bool = False) -> Any:
    """A value of this type: its bytes and headers are secret, nothing that may be there lacks."""
    match type:
        case inspect.StructType():
            given = {one.name: full(one.type, header=one.name == "headers") for one in type.fields}
            given |= {name: b"" for name in HASHES if name in given}
            return type.cls(**given)
        case inspect.UnionType():
            some = [one for one in type.types if not isinstance(one, inspect.NoneType)]
            return full(some[0])
        case inspect.VarTupleType():
            item = type.item_type
            many = item.types if isinstance(item, inspect.UnionType) else (item,)
            return tuple(full(one) for one in many)
        case inspect.TupleType():
            return tuple(full(one) for one in type.item_types)
        case inspect.DictType():
            return {"a": SECRET.decode() if header else full(type.value_type)}
        case inspect.EnumType():
            return next(iter(type.cls))
        case inspect.BytesType():
            return SECRET
        case _:
            return PLAIN[type.__class__]


PLAIN: dict[type, Any] = {
    inspect.StrType: "text",
    inspect.IntType: 1,
    inspect.FloatType: 1.0,
    inspect.BoolType: False,
    inspect.UUIDType: UUID(int=1),
    inspect.DateTimeType: datetime(2026, 1, 1, tzinfo=UTC),
    inspect.NoneType: None,
    inspect.AnyType: None,
}


def shown(asker: Asker, answer: Any) -> bytes:
    return msgspec.msgpack.encode(shown_to(asker, m.Hello(1), answer))


@pytest.mark.parametrize(
    "request_type", [one for one in m.ANSWERS if one not in OTHERWISE | DECLARED]
)
def test_no_answer_shows_payloads_or_headers_to_who_may_see_none(request_type: type) -> None:
    answer = full(inspect.type_info(m.ANSWERS[request_type]))
    assert SECRET not in shown(BLIND, answer)
    assert shown_to(LOCAL, m.Hello(1), answer) == answer


def test_the_answers_that_are_judged_have_payloads_and_headers_to_hide() -> None:
    told = {type: full(inspect.type_info(answer)) for type, answer in m.ANSWERS.items()}
    secret = {type for type, answer in told.items() if SECRET in shown(LOCAL, answer)}
    assert {m.Show, m.ListJobs, m.ShowGroup, a.Send, a.ListUndelivered} <= secret


@pytest.mark.parametrize("request_type", [m.Show, m.ListJobs, m.ShowGroup, m.ListGroups])
def test_a_reader_sees_payloads_and_the_names_of_headers(request_type: type) -> None:
    answer = full(inspect.type_info(m.ANSWERS[request_type]))
    seen = shown(READER, answer)
    assert b"\xa6secret" not in seen, "a text: what a header holds"
    assert b"\xc4\x06secret" in seen, "bytes: a payload"
    assert HIDDEN.encode() in seen
    assert b"\xa6secret" in shown(SUBMITTER, answer)


def test_a_reader_sees_the_job_of_a_callback_without_what_its_headers_hold() -> None:
    job: Job = full(inspect.type_info(Job))
    callback: Callback = full(inspect.type_info(Callback))
    job = structs.replace(job, kind=CALLBACK_KIND, args=msgspec.msgpack.encode(callback))
    seen = shown_to(READER, m.Show(1, job.id), job)
    assert read_callback(seen.args) == structs.replace(callback, headers={"a": HIDDEN})
    assert shown_to(SUBMITTER, m.Show(1, job.id), job) == job
    listed = structs.replace(job, args=b"")
    [one] = shown_to(READER, m.ListJobs(1), JobPage((listed,))).jobs
    assert one.args == b""


def test_run_times_are_shown_of_kinds_in_scope() -> None:
    told = [RunTime("send", 1, 1.0), RunTime("pack", 1, 1.0)]
    scoped = Asker("token:mail", Role.READ, Scope(kinds=("send",)))
    assert shown_to(scoped, m.ListRunTimes(1, ("send", "pack")), told) == told[:1]
