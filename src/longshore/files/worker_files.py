"""The files of programs on a worker: a `ports.Files` over gateways and a cache."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from longshore.config import FileSettings
from longshore.core.file_paths import check_path, shown
from longshore.errors import (
    Damaged,
    DiskFull,
    InvalidInput,
    LongshoreError,
    NotFound,
)
from longshore.files.beneath import made_folder, opened_folder
from longshore.files.cache import BlobCache
from longshore.files.collect import Bounds, Collecting, Refused, Unmatched, collect
from longshore.files.documents import InputRequest, ShownVersion
from longshore.files.local import default_cache, near_folder
from longshore.files.patterns import Patterns
from longshore.files.pulling import Pulling, chosen
from longshore.files.pushing import Pushing
from longshore.files.transfer import FileClient, Terms
from longshore.model.fileset import Manifest, NewVersion
from longshore.model.program import Input, Outcome, Output
from longshore.ports.files import FilesFailed, OnProgress

Outcomes = Sequence[tuple[tuple[type[Exception], ...], Outcome]]

_OF_INPUTS: Final[Outcomes] = (
    ((NotFound, Damaged), Outcome.INPUT_MISSING),
    ((DiskFull,), Outcome.DISK_FULL),
    ((InvalidInput,), Outcome.NOT_STARTED),
    ((LongshoreError, OSError), Outcome.TRANSFER_FAILED),
)
_OF_OUTPUTS: Final[Outcomes] = (
    ((Unmatched,), Outcome.OUTPUT_MISSING),
    ((DiskFull,), Outcome.DISK_FULL),
    ((Refused, InvalidInput), Outcome.OUTPUT_REFUSED),
    ((LongshoreError, OSError), Outcome.TRANSFER_FAILED),
)
"""What an error means for an attempt: the first row that fits."""


class FileTerms(Struct, frozen=True, kw_only=True):
    """Where a worker gets files, and how much of them it takes."""

    urls: tuple[str, ...]
    cache: Path
    cache_bytes: int
    bounds: Bounds
    timeout_s: float
    transfer: Terms
    near: Path | None = None
    """The folder of a gateway on this machine, if there is one."""

    @classmethod
    def of(cls, settings: FileSettings) -> FileTerms:
        """The terms that settings name."""
        return cls(
            urls=settings.files_url,
            cache=Path(settings.files_cache) if settings.files_cache else default_cache(),
            cache_bytes=settings.files_cache_bytes,
            bounds=Bounds(settings.max_fileset_bytes, settings.max_fileset_files),
            timeout_s=settings.transfer_timeout_s,
            transfer=Terms(settings.transfer_slots, settings.transfer_bytes_per_s),
            near=near_folder(settings.files),
        )


class WorkerFiles:
    """Brings inputs and takes outputs. All attempts of a worker share its cache and connections."""

    def __init__(self, terms: FileTerms) -> None:
        self._terms = terms
        self._cache = BlobCache(terms.cache, terms.cache_bytes)
        self._client = FileClient(terms.urls, terms=terms.transfer)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def bring(self, ticket: str, wanted: Input, into: Path, on_progress: OnProgress) -> None:
        """Puts the files of an input below `wanted.path` in an attempt's folder."""
        client = self._client.with_ticket(ticket)
        what = f"the input {shown(wanted.fileset)}"
        async with self._within(client, what):
            with _told(what, _OF_INPUTS):
                version = await client.input(InputRequest(wanted.fileset, wanted.version))
                await self._put(client, version, wanted, into, on_progress)

    async def _put(
        self,
        client: FileClient,
        version: ShownVersion,
        wanted: Input,
        into: Path,
        on_progress: OnProgress,
    ) -> None:
        terms = self._terms
        pulling = Pulling(client, self._cache, terms.transfer.slots, terms.near)
        manifest = await pulling.manifest(bytes.fromhex(version.manifest), self._terms.bounds)
        what = f"version {version.version}"
        files = await asyncio.to_thread(chosen, manifest, Patterns(wanted.patterns), what)
        way = check_path(wanted.path) if wanted.path else ()
        with opened_folder(into) as top, made_folder(top, way) as folder:
            await pulling.put(folder, files, on_progress)

    async def take(
        self, ticket: str, made: Output, found_in: Path, on_progress: OnProgress
    ) -> NewVersion:
        """Stores the files of an output, which lie below `made.path` in an attempt's folder."""
        client = self._client.with_ticket(ticket)
        what = f"the output {shown(made.fileset)}"
        async with self._within(client, what):
            with _told(what, _OF_OUTPUTS), self._opened(found_in, made) as folder:
                manifest = await self._collected(folder, made)
                pushing = Pushing(client, self._terms.transfer.slots)
                pushed = await pushing.push(folder, manifest, on_progress)
        sealed = pushed.sealed
        return NewVersion(made.fileset, pushed.manifest, sealed.files, sealed.total_bytes)

    @contextmanager
    def _opened(self, found_in: Path, made: Output) -> Iterator[int]:
        try:
            way = check_path(made.path) if made.path else ()
            with opened_folder(found_in, way) as folder:
                yield folder
        except (FileNotFoundError, NotADirectoryError):
            gone = f"there is no folder {shown(made.path)}" if made.path else "its folder is gone"
            raise Unmatched(gone) from None

    async def _collected(self, folder: int, made: Output) -> Manifest:
        stopped = threading.Event()
        told = Collecting(is_stopped=stopped.is_set)
        patterns = Patterns(made.patterns)
        work = asyncio.ensure_future(
            asyncio.to_thread(collect, folder, patterns, self._terms.bounds, told)
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            # The descriptor of the folder must outlive the thread that reads it.
            await asyncio.gather(work, return_exceptions=True)
            raise

    @asynccontextmanager
    async def _within(self, client: FileClient, what: str) -> AsyncIterator[None]:
        """Gives up after the time that transfers have."""
        seconds = self._terms.timeout_s
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            why = f"; last: {client.last_error}" if client.last_error else ""
            raise FilesFailed(
                Outcome.TRANSFER_FAILED,
                f"{what} was not moved within transfer_timeout_s ({seconds:g} s){why}",
            ) from None


@contextmanager
def _told(what: str, outcomes: Outcomes) -> Iterator[None]:
    """Says what an error means for the attempt. What nobody expects stays as it is."""
    try:
        yield
    except Exception as error:
        first = _first(error)
        for kinds, outcome in outcomes:
            if isinstance(first, kinds):
                raise FilesFailed(outcome, f"{what}: {first}") from None
        raise


def _first(error: BaseException) -> BaseException:
    """One of several errors that ended transfers side by side."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
