"""The files of programs on a worker: a `ports.Files` over gateways and a cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
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
from longshore.files.beneath import made_folder, opened, opened_folder
from longshore.files.cache import BlobCache
from longshore.files.collect import Bounds, Collecting, Refused, Unmatched, collect
from longshore.files.documents import CheckpointRequest, InputRequest, ShownVersion
from longshore.files.local import default_cache, near_folder
from longshore.files.packs import PACKED_BYTES
from longshore.files.patterns import Patterns
from longshore.files.place import by_blob, make_way
from longshore.files.pulling import Pulling, chosen
from longshore.files.pushing import Pushing
from longshore.files.threads import in_thread
from longshore.files.transfer import FileClient, Terms
from longshore.model.checkpoint import CheckpointView
from longshore.model.fileset import Manifest, NewVersion
from longshore.model.program import Input, Outcome, Output
from longshore.ports.files import FilesFailed, OnProgress, Saving

MOST_KEPT: Final = 1_000
"""Of a version with more files, the small ones are not kept in the cache."""
Outcomes = Sequence[tuple[tuple[type[Exception], ...], Outcome]]

OF_INPUTS: Final[Outcomes] = (
    ((NotFound, Damaged), Outcome.INPUT_MISSING),
    ((DiskFull,), Outcome.DISK_FULL),
    ((InvalidInput,), Outcome.NOT_STARTED),
    ((LongshoreError, OSError), Outcome.TRANSFER_FAILED),
)
OF_OUTPUTS: Final[Outcomes] = (
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
        what = f"the input {shown(wanted.called)}"
        async with self._within(client, what):
            with told(what, OF_INPUTS):
                asked = InputRequest(wanted.fileset, wanted.version, node=wanted.maker)
                version = await client.input(asked)
                await self._put(client, version, wanted, into, on_progress)

    async def restore(self, ticket: str, into: Path, on_progress: OnProgress) -> int | None:
        """Puts the files of the job's checkpoint where they lay; answers how many there are."""
        client, what = self._client.with_ticket(ticket), "the checkpoint"
        async with self._within(client, what):
            with told(what, OF_INPUTS):
                saved = await client.checkpoint()
                if saved is None:
                    return None
                pulling = self._pulling(client)
                manifest = await pulling.manifest(bytes.fromhex(saved.manifest), self._terms.bounds)
                with opened_folder(into) as folder:
                    await asyncio.to_thread(make_way, folder, manifest.files)
                    await pulling.put(folder, manifest.files, on_progress)
                return len(manifest.files)

    async def save(
        self, ticket: str, saved: Saving, found_in: Path, on_progress: OnProgress
    ) -> CheckpointView:
        """Stores files as the checkpoint of the job: the next attempt begins with them."""
        client, what = self._client.with_ticket(ticket), "the checkpoint"
        async with self._within(client, what):
            with told(what, OF_OUTPUTS), opened_folder(found_in) as folder:
                manifest = await self._collected(folder, saved.patterns)
                pushing = Pushing(client, self._terms.transfer.slots)
                pushed = await pushing.push(folder, manifest, on_progress)
                asked = CheckpointRequest(pushed.manifest.hex(), pushed.size, saved.sequence)
                kept = await client.save_checkpoint(asked)
        return CheckpointView(
            files=kept.files,
            total_bytes=kept.total_bytes,
            saved_at=kept.saved_at,
            number=kept.number,
            idle=kept.idle,
        )

    def _pulling(self, client: FileClient) -> Pulling:
        terms = self._terms
        return Pulling(client, self._cache, terms.transfer.slots, terms.near)

    async def _put(
        self,
        client: FileClient,
        version: ShownVersion,
        wanted: Input,
        into: Path,
        on_progress: OnProgress,
    ) -> None:
        pulling = self._pulling(client)
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
            with told(what, OF_OUTPUTS), opened_output(found_in, made) as folder:
                manifest = await self._collected(folder, made.patterns)
                pushing = Pushing(client, self._terms.transfer.slots)
                pushed = await pushing.push(folder, manifest, on_progress)
                await asyncio.to_thread(self._keep, folder, manifest)
        sealed = pushed.sealed
        return NewVersion(made.fileset, pushed.manifest, sealed.files, sealed.total_bytes)

    def _keep(self, folder: int, manifest: Manifest) -> None:
        """Keeps what an attempt made in the cache: the next job may need it here.

        Of very many files only the large ones: small ones come quickly, many at a time.
        """
        if self._terms.near is not None or manifest.total_bytes > self._cache.most_bytes // 2:
            return
        least = PACKED_BYTES if len(manifest.files) > MOST_KEPT else -1
        for file, _ in by_blob(manifest.files):
            if file.size > least and not self._cache.has(file.sha256):
                *way, name = check_path(file.path)
                with suppress(OSError), opened(folder, way) as inside:
                    self._cache.link(file.sha256, inside, name)

    async def _collected(self, folder: int, given: tuple[str, ...]) -> Manifest:
        patterns, bounds = Patterns(given), self._terms.bounds
        return await in_thread(
            lambda is_stopped: collect(folder, patterns, bounds, Collecting(is_stopped=is_stopped))
        )

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
def opened_output(found_in: Path, made: Output) -> Iterator[int]:
    """Opens the folder of an output; raises `Unmatched` if it is not there."""
    try:
        way = check_path(made.path) if made.path else ()
        with opened_folder(found_in, way) as folder:
            yield folder
    except (FileNotFoundError, NotADirectoryError):
        gone = f"there is no folder {shown(made.path)}" if made.path else "its folder is gone"
        raise Unmatched(gone) from None


@contextmanager
def told(what: str, outcomes: Outcomes) -> Iterator[None]:
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
