"""Messages to frames and back.

A message has three frames: an empty one, the verb, and a msgpack map. (The plain dialogue, for
workers and clients without msgpack, has two.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar, get_args
from uuid import UUID

import msgspec

from longshore.errors import ProtocolError
from longshore.wire import actor_messages, messages, web_messages
from longshore.wire.portions import MESSAGE_BYTES

M = TypeVar("M", bound=msgspec.Struct)

_LARGE = frozenset(
    {
        messages.Done,
        messages.Logs,
        messages.Submit,
        messages.SubmitGroup,
        actor_messages.StartActors,
        actor_messages.Send,
        actor_messages.Resolve,
        actor_messages.EditActor,
        web_messages.ReportEnd,
    }
)

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")

_UNDECODABLE = (ValueError, ArithmeticError, TypeError, RecursionError, MemoryError)
"""What a decoder can raise for bytes that a stranger chose.

msgspec's own errors are ValueErrors, and so is the error for a time past the year 9999.
"""


def _verb(message: type) -> bytes:
    return message.__name__.upper().encode()


_SMALL = frozenset(
    _verb(kind)
    for kind in (*get_args(messages.WorkerMessage), *get_args(messages.Request))
    if kind not in _LARGE
)
"""Verbs of messages that are never large. To decode 64 MiB would stop the process for seconds."""


def encode(message: msgspec.Struct) -> list[bytes]:
    """The frames of a message."""
    return [b"", _verb(type(message)), _encoder.encode(message)]


def ok(rid: int, answer: object) -> list[bytes]:
    """The frames of an OK that carries this answer."""
    return encode(messages.Ok(rid, msgspec.Raw(_encoder.encode(answer))))


@lru_cache(maxsize=64)
def _answer_decoder(request: type) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(messages.ANSWERS[request])


def answer_to(request: msgspec.Struct, answer: messages.Ok) -> Any:
    """What an OK carries in answer to a request, as the type that `ANSWERS` names."""
    try:
        return _answer_decoder(type(request)).decode(answer.answer)
    except _UNDECODABLE as error:
        verb = _verb(type(request)).decode()
        raise ProtocolError(f"the answer to {verb} is malformed: {error}") from None


def request_number(frames: Sequence[bytes]) -> int | None:
    """The `rid` of a malformed request; None if it has none."""
    try:
        return _rid.decode(frames[2]).rid
    except (IndexError, *_UNDECODABLE):
        return None


def worker_of(frames: Sequence[bytes]) -> UUID | None:
    """The worker that a message between worker and dispatcher names; None if it is malformed."""
    try:
        return _named.decode(frames[2]).worker
    except (IndexError, *_UNDECODABLE):
        return None


class _Named(msgspec.Struct, frozen=True):
    worker: UUID


_named = msgspec.msgpack.Decoder(_Named)
_rid = msgspec.msgpack.Decoder(messages.Numbered)


class Codec(Generic[M]):
    """Decodes one direction of a dialogue: a fixed set of messages, by their verbs."""

    def __init__(self, *types: type[M]) -> None:
        self._decoders: dict[bytes, msgspec.msgpack.Decoder[M]] = {
            _verb(kind): msgspec.msgpack.Decoder(kind) for kind in types
        }

    def decode(self, frames: Sequence[bytes]) -> M:
        """The message in these frames; raises `ProtocolError` if there is none."""
        if len(frames) != 3 or frames[0]:
            raise ProtocolError(f"a message has 3 frames, the first empty; got {len(frames)}")
        decoder = self._decoders.get(frames[1])
        if decoder is None:
            raise ProtocolError(f"unknown verb {frames[1][:32]!r}")
        if len(frames[2]) > MESSAGE_BYTES and frames[1] in _SMALL:
            raise ProtocolError(
                f"{frames[1].decode()} takes {len(frames[2]):,} bytes; at most "
                f"{MESSAGE_BYTES:,} are allowed"
            )
        try:
            return decoder.decode(frames[2])
        except _UNDECODABLE as error:
            raise ProtocolError(f"{frames[1].decode()} is malformed: {error}") from None


from_worker: Codec[messages.WorkerMessage] = Codec(*get_args(messages.WorkerMessage))
from_dispatcher: Codec[messages.DispatcherMessage] = Codec(*get_args(messages.DispatcherMessage))
from_client: Codec[messages.Request] = Codec(*get_args(messages.Request))
to_client: Codec[messages.Answer] = Codec(*get_args(messages.Answer))
