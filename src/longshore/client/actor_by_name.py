"""Actors of types whose class is elsewhere: what workers tell of the type."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from longshore.client.actor_decorator import actor_terms
from longshore.client.connection import Connection
from longshore.client.kind import Terms
from longshore.core.turns import split_kind, turn_kind
from longshore.errors import InvalidArguments, InvalidInput
from longshore.model.actor import Message, NewActor
from longshore.model.worker import KindInfo, Parameter, WorkerView
from longshore.payload.listed import listed_values
from longshore.payload.schemas import check_value, nearest
from longshore.payload.values import pack, unpack

KEPT_S: Final = 1.0
"""So long it counts that no worker serves a type."""


async def new_actor(
    connection: Connection, id: UUID, type: str, key: str, fields: dict[str, Any]
) -> NewActor:
    """An actor to start with these fields, by what live workers tell of its type."""
    version, info = newest(await connection.workers(), type)
    check_fields(type, fields, info)
    state = pack(fields, f"the state of actor {type} '{key}'")
    terms = actor_terms(type, Terms.of_kind(info), info.history)
    return NewActor(id, type, key, state, version, terms, listed_values(type, state, info.listed))


def newest(workers: Sequence[WorkerView], type: str) -> tuple[int, KindInfo]:
    """The newest version of a type that a live worker serves, and what it says of it."""
    found: dict[int, KindInfo] = {}
    kinds = {kind: info for one in workers if one.alive for kind, info in one.info.kinds.items()}
    for kind, info in kinds.items():
        name, _, version = kind.rpartition("@")
        if name == type and version.isdigit():
            found[int(version)] = info
    if not found:
        types = sorted({kind.rpartition("@")[0] for kind in kinds if "@" in kind})
        raise InvalidInput(
            f"no live worker serves actors of type '{type}'{nearest(type, types)}, so its state is "
            f"not known; start one, or start the actor in a program: {type}.start(…)"
        )
    return max(found.items())


async def told_of(connection: Connection, type: str, version: int) -> KindInfo | None:
    """What a live worker tells of this version of a type; None if none serves it."""
    kind = turn_kind(type, version)
    alive = (one.info.kinds for one in await connection.workers() if one.alive)
    return next((kinds[kind] for kinds in alive if kind in kinds), None)


def check_fields(type: str, fields: dict[str, Any], info: KindInfo) -> None:
    """Raises `InvalidArguments` unless an actor of this type can start with these fields."""
    known = {one.name: one for one in info.parameters or ()}
    for name in fields:
        if name not in known:
            raise InvalidArguments(
                f"actor '{type}' has no field '{name}'{nearest(name, known)}; it has: "
                f"{', '.join(known) or 'none'}"
            )
        check_value(f"actor '{type}': field '{name}'", fields[name], known[name])
    for name, one in known.items():
        if one.required and name not in fields:
            raise InvalidArguments(f"actor '{type}' cannot be without '{name}'; give {name}=…")


class KnownHandlers:
    """What live workers told of the messages that types of actors take, when they were asked."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types: dict[str, list[KindInfo]] = {}
        self._asked_at = float("-inf")

    async def check(self, message: Message) -> None:
        """Raises `InvalidArguments` if live workers serve the type, and none takes such a message.

        It would fail the actor's turn, and with it the actor. What was told before is enough to let
        a message pass. Before one is refused, the workers are asked again: there may be newer ones.
        """
        infos = self._types.get(message.type)
        if infos and _first_wrong(infos, message) is None:
            return
        now = asyncio.get_running_loop().time()
        if infos or now - self._asked_at > KEPT_S:
            self._types = _by_type(await self._connection.workers())
            self._asked_at = now
        wrong = _first_wrong(self._types.get(message.type, ()), message)
        if wrong is not None:
            raise wrong


def _by_type(workers: Sequence[WorkerView]) -> dict[str, list[KindInfo]]:
    """What live workers say of each type, of each version that they serve."""
    found: dict[str, list[KindInfo]] = {}
    for worker in workers:
        for kind, info in worker.info.kinds.items() if worker.alive else ():
            type, version = split_kind(kind)
            of_type = found.setdefault(type, []) if version else []
            if info not in of_type:
                of_type.append(info)
    return found


def _first_wrong(infos: Sequence[KindInfo], message: Message) -> InvalidArguments | None:
    """Why none of these takes a message; None if one does, or if there are none."""
    wrong: list[InvalidArguments] = []
    for info in infos:
        try:
            _check_message(message, info)
        except InvalidArguments as error:
            wrong.append(error)
        else:
            return None
    return wrong[-1] if wrong else None


def _check_message(message: Message, info: KindInfo) -> None:
    if info.messages is None:
        return
    if message.name not in info.messages:
        raise InvalidArguments(
            f"actor '{message.type}' has no message '{message.name}'"
            f"{nearest(message.name, info.messages)}; it has: {', '.join(info.messages) or 'none'}"
        )
    takes = info.messages[message.name]
    if takes is not None:
        what = f"actor '{message.type}': message '{message.name}'"
        _check_arguments(what, unpack(message.args), takes)


def _check_arguments(what: str, given: dict[str, Any], takes: Sequence[Parameter]) -> None:
    known = {one.name: one for one in takes}
    listed = ", ".join(known) or "no arguments"
    for name, value in given.items():
        if name not in known:
            raise InvalidArguments(
                f"{what} has no argument '{name}'{nearest(name, known)}; it takes {listed}"
            )
        check_value(f"{what}: argument '{name}'", value, known[name])
    for one in takes:
        if one.required and one.name not in given:
            raise InvalidArguments(f"{what} needs argument '{one.name}'; it takes {listed}")
