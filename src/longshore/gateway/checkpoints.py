"""Checkpoints over HTTP: attempts ask, with their tickets."""

from __future__ import annotations

from starlette.responses import Response

from longshore.errors import WrongState
from longshore.files import documents as d
from longshore.files.blobs import parse_sha256
from longshore.gateway.files import ticket_of_attempt
from longshore.gateway.operation import Call, answer
from longshore.gateway.uploads import sealed
from longshore.model.checkpoint import NewCheckpoint


async def find(call: Call) -> Response:
    """Says which files an attempt begins with."""
    saved = await call.connection.files.find_checkpoint(ticket_of_attempt(call))
    return answer(d.CheckpointAnswer(None if saved is None else d.shown_checkpoint(saved)))


async def save(call: Call) -> Response:
    """Keeps the files of an attempt, which are all stored, for the next one."""
    wanted, ticket = await call.body(d.CheckpointRequest), ticket_of_attempt(call)
    files = await sealed(call, wanted.manifest, wanted.size, None)
    made = NewCheckpoint(
        parse_sha256(wanted.manifest), len(files.files), files.total_bytes, wanted.sequence
    )
    saved = await call.connection.files.save_checkpoint(ticket, made)
    if saved is None:
        raise WrongState("the attempt is over, so it has no checkpoint to save")
    return answer(d.shown_checkpoint(saved), 201)
