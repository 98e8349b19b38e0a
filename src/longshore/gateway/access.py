"""Tokens and the audit over HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct
from starlette.responses import Response

from longshore.client.access_json import audited_json, token_json
from longshore.client.tokens import new_token
from longshore.gateway.ids import new_id
from longshore.gateway.jobs import moment
from longshore.gateway.models import NewTokenBody, Number
from longshore.gateway.operation import Call, answer
from longshore.model.access import AuditFilter, Scope


class AuditQuery(Struct, frozen=True):
    """Which entries of the audit to list."""

    by: str | None = None
    """Who asked: `token:NAME`, `key:NAME` or `local`."""
    action: str | None = None
    subject: str | None = None
    """A part of what it was about."""
    since: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None = None
    before: Number | None = None
    """Only entries with a lower number: the cursor."""
    limit: Annotated[int, Meta(ge=1)] = 50


async def list_tokens(call: Call) -> Response:
    """Lists the tokens, without their secrets."""
    return answer({"tokens": [token_json(one) for one in await call.connection.tokens()]})


async def create_token(call: Call) -> Response:
    """Makes a token. Its secret is in this answer, and nowhere else."""
    wanted = await call.body(NewTokenBody)
    scope = Scope(tuple(wanted.queues), tuple(wanted.kinds), wanted.payloads)
    expires_s = None if wanted.expires_s is UNSET else wanted.expires_s
    secret, new = new_token(new_id(), wanted.name, wanted.role, scope, expires_s)
    made = await call.connection.create_token(new)
    return answer({**token_json(made), "token": secret}, 201)


async def revoke_token(call: Call) -> Response:
    """Makes a token worthless."""
    return answer(token_json(await call.connection.revoke_token(call.name("id"))))


async def list_audit(call: Call) -> Response:
    """Lists who asked for which changes, newest first."""
    query = call.query(AuditQuery)
    limit = min(query.limit, call.settings.max_page)
    since = None if query.since is None else moment(query.since)
    wanted = AuditFilter(query.by, query.action, query.subject, since, query.before, limit)
    found = await call.connection.audit(wanted)
    after = found[-1].number if len(found) == limit else None
    headers = None if after is None else call.next_link(before=after)
    return answer({"entries": [audited_json(one) for one in found], "next": after}, headers=headers)
