"""What a dispatcher checks of tickets itself; without one of these checks, a story notices.

What a ticket opens is the store's to say (see `tests/conformance/test_ticket_guards.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec import structs

from longshore.core import tickets
from longshore.dispatcher.file_service import FileService
from longshore.dispatcher.tickets import Tickets
from longshore.errors import NotAuthenticated
from longshore.model.attempt import Attempt
from longshore.model.fileset import BlobRef, Holder, PinVerdict, Ticket
from longshore.model.worker import KindInfo, Pool
from longshore.testing.builders import a_job
from longshore.testing.file_builders import FILESET, a_blob, a_folder

from . import stage as staging
from .stage import Stage
from .test_audit import connection
from .test_filesets import begun, begun_at, pushed
from .test_stories import Story, tell

MANIFEST = a_blob("manifest")


@pytest.fixture(autouse=True)
def jobs_with_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(staging.KINDS, "work", KindInfo(Pool.COROUTINE, None, files=True))


async def refuses(stage: Stage, ticket: str) -> None:
    async with connection(stage) as client:
        with pytest.raises(NotAuthenticated):
            await client.files.pin(MANIFEST, (), ticket=ticket)
        with pytest.raises(NotAuthenticated):
            await client.files.locate([MANIFEST.sha256], ticket=ticket)


async def forged_ticket(stage: Stage) -> None:
    """Somebody who knows a job and its token makes a ticket of them."""
    await stage.dispatcher()
    given = await begun(stage, await stage.worker(), a_job())
    made = Ticket(given.job, given.token, given.round, 2**40, 2**40)
    await refuses(stage, tickets.sign(b"a guess", made))


async def expired_ticket(stage: Stage) -> None:
    """Who has the key signs a ticket whose time is over, for an attempt that still counts."""
    await stage.dispatcher()
    given = await begun(stage, await stage.worker(), a_job())
    key = tickets.ticket_key(await stage.model.callback_secret())
    said = tickets.verified(key, given.ticket, 0.0)
    late = structs.replace(said, expires_at=int(stage.clock.utc().timestamp()) - 1)
    await refuses(stage, tickets.sign(key, late))


async def ticket_of_a_smaller_quota(stage: Stage) -> None:
    """The dispatcher that gave the ticket allows less than the one that is asked."""
    await stage.dispatcher("d2", max_fileset_bytes=100)
    await stage.dispatcher("d1")
    given = await begun_at(stage, await stage.worker(to="d2"), "d2")
    async with connection(stage) as client:
        large = BlobRef(a_blob("large").sha256, 101)
        pinned = await client.files.pin(MANIFEST, [large], ticket=given.ticket)
        assert pinned.verdict is PinVerdict.TOO_LARGE


async def input_of_another_job(stage: Stage) -> None:
    """Whoever asks gets an input for its own job: the ticket says which that is."""
    await stage.dispatcher()
    worker = await stage.worker()
    one, other = [await begun(stage, worker, a_job()) for _ in range(2)]
    async with connection(stage) as client:
        await pushed(client, folder := a_folder("one"))
        assert await client.files.input_version(one.ticket, FILESET) is not None
        blob = folder.blobs[0].sha256
        found = [await client.files.locate([blob], ticket=which.ticket) for which in (one, other)]
        assert [generation is not None for (generation,) in found] == [True, False]


def any_signature(_own: bytes, _shown: bytes) -> bool:
    return True


def any_time(key: bytes, text: str, _now: float) -> Ticket:
    return tickets.verified(key, text, 0.0)


async def own_quota(self: FileService, ticket: str, upload: Any) -> tuple[Holder, int]:
    read = await self._tickets.read(ticket)
    return Holder(read.job, read.token), self.settings.max_fileset_bytes


def one_for_all(self: Tickets, attempt: Attempt) -> str:
    """The first ticket, whoever asks."""
    first = self.__dict__.setdefault("first", attempt)
    return _issue(self, first)


_issue: Callable[[Tickets, Attempt], str] = Tickets.issue

GUARDS: Final[dict[str, tuple[Story, str, object]]] = {
    "any signature": (forged_ticket, "longshore.core.tickets.compare_digest", any_signature),
    "no expiry": (expired_ticket, "longshore.dispatcher.tickets.verified", any_time),
    "no quota": (
        *(ticket_of_a_smaller_quota, "longshore.dispatcher.file_service.FileService._holder"),
        own_quota,
    ),
    "one ticket for all": (
        *(input_of_another_job, "longshore.dispatcher.tickets.Tickets.issue", one_for_all),
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_story_goes_well_while_every_guard_is_there(guard: str) -> None:
    tell(GUARDS[guard][0])


@pytest.mark.parametrize("guard", GUARDS)
def test_dispatcher_without_a_guard_is_noticed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story, where, twin = GUARDS[guard]
    monkeypatch.setattr(where, twin)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        tell(story)
