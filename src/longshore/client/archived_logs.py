"""Reads lines of a job's log that lie in the file store: gateways have them, so they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from msgspec import DecodeError, Struct, json

from longshore.client.connection import Connection, Ref
from longshore.client.gateways import gateway_urls
from longshore.client.tokens import own_secret
from longshore.core.log_archives import not_read, wanted
from longshore.errors import LongshoreError, Unavailable
from longshore.model.log import LogLine
from longshore.model.log_archive import LogPart, Place

ANSWER_S: Final = 30.0
_TOLD_CHARS: Final = 300


class _Page(Struct, frozen=True):
    """What a gateway answers that matters here."""

    lines: tuple[LogLine, ...]
    next: str


_decode = json.Decoder(_Page).decode


async def read_archived(
    connection: Connection,
    ref: Ref,
    attempt: int | None,
    after: Place,
    parts: Sequence[LogPart],
) -> AsyncGenerator[LogLine, None]:
    """The lines of these parts past a place, or a note where they are, if no gateway shows them."""
    end = parts[-1].up_to
    try:
        urls = await gateway_urls(connection)
        while after < end:
            page = await _ask(urls, ref, attempt, after)
            reached = _place(page.next)
            if reached <= after:
                raise Unavailable("the gateway showed nothing more of it")
            # What follows the parts, the store shows.
            for line in wanted(page.lines, after, None):
                if (line.token, line.seq) <= end:
                    yield line
            after = reached
    except LongshoreError as error:
        for part in parts:
            if part.up_to > after:
                yield not_read(part, str(error))


async def _ask(urls: Sequence[str], ref: Ref, attempt: int | None, after: Place) -> _Page:
    """A page of a log from the first gateway that shows it."""
    why = "no gateway is known; connect to one (--connect http://HOST:PORT)"
    for url in urls:
        given = {"after": f"{after[0]}-{after[1]}"}
        if attempt is not None:
            given["attempt"] = str(attempt)
        address = f"{url}/dispatcher/jobs/{ref}/logs?{urlencode(given)}"
        try:
            return await asyncio.to_thread(_get, address)
        except HTTPError as error:
            why = f"{url} answered {error.code}: {_told(error)}"
        except (OSError, ValueError, HTTPException, DecodeError) as error:
            why = f"{url} does not answer: {error}"
    raise Unavailable(why)


def _get(address: str) -> _Page:
    secret = own_secret()
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    opener = build_opener(ProxyHandler({}))
    with opener.open(Request(address, headers=headers), timeout=ANSWER_S) as answer:
        return _decode(answer.read())


def _told(error: HTTPError) -> str:
    return error.read()[:_TOLD_CHARS].decode(errors="replace")


def _place(text: str) -> Place:
    token, _, seq = text.partition("-")
    return int(token), int(seq)
