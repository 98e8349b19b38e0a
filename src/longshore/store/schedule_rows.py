"""Schedules as both stores keep them."""

from __future__ import annotations

from typing import Final

from msgspec import msgpack

from longshore.model.schedule import NewSchedule, ScheduleState

MOST_OPEN: Final = 2000
"""So many fires that are not settled one look reads; those whose runs have ended come first."""

_encode: Final = msgpack.Encoder(uuid_format="bytes").encode
_new_decoder: Final = msgpack.Decoder(NewSchedule)
_state_decoder: Final = msgpack.Decoder(ScheduleState)


def pack_new(new: NewSchedule) -> bytes:
    """What was declared, as it is stored."""
    return _encode(new)


def unpack_new(packed: bytes) -> NewSchedule:
    """What was declared."""
    return _new_decoder.decode(packed)


def pack_state(state: ScheduleState) -> bytes:
    """How far a schedule is, as it is stored."""
    return _encode(state)


def unpack_state(packed: bytes) -> ScheduleState:
    """How far a schedule is."""
    return _state_decoder.decode(packed)
