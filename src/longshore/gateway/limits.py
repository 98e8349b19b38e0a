"""Limits over HTTP: the rules, and what a key is at."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.responses import Response

from longshore.client.jsonable import plain
from longshore.core.access import Right
from longshore.core.rates import parse_rate
from longshore.errors import InvalidInput
from longshore.gateway.operation import Call, Operation, answer
from longshore.model.limits import KeyView, LimitRule

MOST_KEYS: Final = 100


class NewRule(Struct, frozen=True, forbid_unknown_fields=True):
    """What limits or weighs the keys that match a pattern; a rate is written as `100/min`."""

    concurrency: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: float | None = None


class LimitList(Struct, frozen=True):
    """The rules of limits."""

    limits: list[LimitRule]


class KeysQuery(Struct, frozen=True):
    """Which keys to list."""

    after: str = ""
    """The cursor: the `next` of the page before."""
    waited_for: bool = False
    """Only keys that jobs wait for."""
    limit: Annotated[int, Meta(ge=1, le=MOST_KEYS)] = 25


class KeyList(Struct, frozen=True):
    """Keys that something is known of; `next` is the cursor of the page after it."""

    keys: list[KeyView]
    next: str | None


class LimitRemoved(Struct, frozen=True):
    """A rule that was removed."""

    removed: str


async def list_limits(call: Call) -> Response:
    """Lists the rules of limits."""
    return answer({"limits": [plain(rule) for rule in await call.connection.limits.rules()]})


async def set_limit(call: Call) -> Response:
    """Sets the rule for the keys that match a pattern."""
    pattern, new = call.name("pattern"), await call.body(NewRule)
    if new.burst is not None and new.rate is None:
        raise InvalidInput("a limit has a burst, but no rate; give a rate like 100/min")
    burst = 1 if new.burst is None else new.burst
    rate = None if new.rate is None else parse_rate(new.rate, burst)
    await call.connection.limits.set(pattern, new.concurrency, rate, new.weight)
    return answer(plain(LimitRule(pattern, new.concurrency, rate, weight=new.weight)))


async def remove_limit(call: Call) -> Response:
    """Removes the rule for a pattern."""
    pattern = call.name("pattern")
    await call.connection.limits.remove(pattern)
    return answer({"removed": pattern})


async def show_key(call: Call) -> Response:
    """Shows what limits a key, and which jobs hold its slots."""
    return answer(plain(await call.connection.limits.key(call.name("key"))))


async def list_keys(call: Call) -> Response:
    """Lists keys whose slots are held, that jobs wait for, or whose rate counts."""
    query = call.query(KeysQuery)
    found = await call.connection.limits.keys(query.after, query.limit, waited_for=query.waited_for)
    after = found[-1].key if len(found) == query.limit else None
    headers = None if after is None else call.next_link(after=after)
    return answer({"keys": [plain(one) for one in found], "next": after}, headers=headers)


LIMIT_ROUTES: Final = (
    Operation(
        method="GET",
        path="/dispatcher/limits/keys/",
        id="list_keys",
        needs=Right.READ,
        summary="List keys of limits that are held, waited for, or counted.",
        do=list_keys,
        query=KeysQuery,
        answers={200: KeyList},
    ),
    Operation(
        method="GET",
        path="/dispatcher/limits/",
        id="list_limits",
        needs=Right.READ,
        summary="List the rules of limits.",
        do=list_limits,
        answers={200: LimitList},
    ),
    Operation(
        method="PUT",
        path="/dispatcher/limits/{pattern}",
        id="set_limit",
        needs=Right.ADMIN,
        summary="Set the rule for the keys that match a pattern, such as tenant=* or queue=mail.",
        do=set_limit,
        body=NewRule,
        answers={200: LimitRule},
    ),
    Operation(
        method="DELETE",
        path="/dispatcher/limits/{pattern}",
        id="remove_limit",
        needs=Right.ADMIN,
        summary="Remove the rule for a pattern.",
        do=remove_limit,
        answers={200: LimitRemoved},
    ),
    Operation(
        method="GET",
        path="/dispatcher/limits/keys/{key}",
        id="show_key",
        needs=Right.READ,
        summary="Show what limits a key, and which jobs hold its slots.",
        do=show_key,
        answers={200: KeyView},
    ),
)
