"""Whatever comes over a socket is a message, or an error of the peer: of every verb there is."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from msgspec import inspect
from tests.unit.hostile.inputs import (
    broken_bytes,
    deep_msgpack,
    packable,
    refusal,
    spoilt,
    values,
)

from longshore.errors import ProtocolError
from longshore.wire import codec, messages
from longshore.wire.codec import Codec, answer_to, request_number, worker_of

SIDES: dict[str, tuple[Codec[Any], Any]] = {
    "worker": (codec.from_worker, messages.WorkerMessage),
    "dispatcher": (codec.from_dispatcher, messages.DispatcherMessage),
    "request": (codec.from_client, messages.Request),
    "answer": (codec.to_client, messages.Answer),
}
VERBS = [
    pytest.param(side, kind, id=kind.__name__)
    for side, (_, union) in SIDES.items()
    for kind in get_args(union)
]


def like(kind: inspect.Type, depth: int = 0) -> Any:
    """The smallest value of a type, as it travels."""
    match kind:
        case inspect.StructType():
            fields = [(f.encode_name, like(f.type, depth + 1)) for f in kind.fields]
            named = {} if kind.tag is None else {str(kind.tag_field): kind.tag}
            if kind.array_like:
                return [*named.values(), *(value for _, value in fields)]
            return {**named, **dict(fields)}
        case inspect.UnionType():
            return like(next((one for one in kind.types if not _is_none(one)), kind.types[0]))
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return [like(kind.item_type, depth + 1)] if depth < 4 else []
        case inspect.TupleType():
            return [like(one, depth + 1) for one in kind.item_types]
        case inspect.DictType():
            return {like(kind.key_type): like(kind.value_type, depth + 1)} if depth < 4 else {}
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.LiteralType():
            return kind.values[0]
        case _:
            return _PLAIN.get(type(kind))


def _is_none(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.NoneType)


_PLAIN: dict[type, Any] = {
    inspect.IntType: 1,
    inspect.FloatType: 1.0,
    inspect.StrType: "a",
    inspect.BytesType: b"\x80",
    inspect.BoolType: True,
    inspect.UUIDType: bytes(16),
    inspect.RawType: None,
    inspect.AnyType: None,
    inspect.DateTimeType: "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(("side", "kind"), VERBS)
def test_the_smallest_message_of_a_verb_is_taken(side: str, kind: type) -> None:
    """So that what the next tests spoil was good before."""
    data = msgspec.msgpack.encode(like(inspect.type_info(kind)))
    decoded, _ = SIDES[side]
    assert isinstance(decoded.decode([b"", kind.__name__.upper().encode(), data]), kind)


@pytest.mark.parametrize(("side", "kind"), VERBS)
def test_a_verb_with_anything_else_in_it_is_an_error_of_the_peer(side: str, kind: type) -> None:
    decoder, _ = SIDES[side]
    verb = kind.__name__.upper().encode()
    good = like(inspect.type_info(kind))
    packed = msgspec.msgpack.encode(good)

    @settings(max_examples=25)
    @given(spoilt([good]).map(packable) | broken_bytes([packed]) | values.map(packable))
    def judge(data: bytes) -> None:
        frames = [b"", verb, data]
        assert refusal(lambda: decoder.decode(frames), ProtocolError) != ""
        request_number(frames)
        worker_of(frames)

    judge()
    with pytest.raises(ProtocolError):
        decoder.decode([b"", verb, deep_msgpack()])


@given(broken_bytes([msgspec.msgpack.encode({"rid": 1, "answer": [{"id": bytes(16)}]})]))
def test_an_answer_that_makes_no_sense_is_an_error_of_the_peer(data: bytes) -> None:
    for request in (messages.Wait(7, (), 1.0), messages.ShowCapacity(1)):
        ok = messages.Ok(7, msgspec.Raw(data))
        assert refusal(partial(answer_to, request, ok), ProtocolError) != ""
