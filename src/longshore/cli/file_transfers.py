"""How `longshore filesets` reaches gateways and moves files, with a bar that shows how far."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import click
from msgspec import Struct
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from longshore.cli.options import Connect, settings
from longshore.cli.view.show import console
from longshore.client.adapters import is_http
from longshore.client.gateways import gateway_urls
from longshore.client.ids import fresh_id
from longshore.client.tokens import own_secret
from longshore.config import DEFAULT_HTTP, Config
from longshore.errors import InvalidInput, NotFinished, NotFound
from longshore.files.beneath import opened_folder
from longshore.files.cache import BlobCache
from longshore.files.collect import Bounds, Refused, Unmatched, collect
from longshore.files.documents import PublishRequest, ShownVersion
from longshore.files.local import default_cache, missing_files, near_folder
from longshore.files.patterns import Patterns
from longshore.files.pulling import Pulling, chosen
from longshore.files.pushing import Pushing
from longshore.files.transfer import FileClient, Terms
from longshore.ports.files import OnProgress

T = TypeVar("T")


class Files(NamedTuple):
    """A client of gateways, and the settings of transfers."""

    client: FileClient
    config: Config

    @property
    def slots(self) -> int:
        """How many files are moved at once."""
        return self.config.filesets.transfer_slots

    @property
    def bounds(self) -> Bounds:
        """How much a version may hold."""
        wanted = self.config.filesets
        return Bounds(wanted.max_fileset_bytes, wanted.max_fileset_files)


class Moved(Struct, frozen=True):
    """A version that was pushed or pulled, and how many bytes went over the wire for it."""

    version: ShownVersion
    files: int
    total_bytes: int
    moved_bytes: int


def ask_files(context: click.Context, talk: Callable[[Files], Awaitable[T]]) -> T:
    """Connects to a gateway, and returns what `talk` returns."""
    config = settings(context.params, "connect")

    async def conversation() -> T:
        async with _client(config, context.obj) as client:
            try:
                async with asyncio.timeout(config.filesets.transfer_timeout_s):
                    return await talk(Files(client, config))
            except TimeoutError:
                raise NotFinished("the files were not moved within transfer_timeout_s") from None

    try:
        return asyncio.run(conversation())
    except BaseExceptionGroup as group:
        raise _first(group) from None


@asynccontextmanager
async def _client(config: Config, dial: Connect) -> AsyncIterator[FileClient]:
    token, urls = own_secret(), await gateways(config, dial)
    wanted = config.filesets
    terms = Terms(wanted.transfer_slots, wanted.transfer_bytes_per_s, config.request_timeout_s)
    async with FileClient(urls, f"Bearer {token}" if token else "", terms) as client:
        yield client


async def gateways(config: Config, dial: Connect) -> Sequence[str]:
    """The gateways to ask: those of `--connect`, of `files_url`, of the fleet, or the usual one.

    Dispatchers that `--connect` names are asked which gateways there are.
    """
    named = [address for address in config.connect if is_http(address)] or config.filesets.files_url
    if named:
        return named
    if not config.connect:
        return [f"http://{config.http or DEFAULT_HTTP}"]
    async with dial(config) as connection:
        found = await gateway_urls(connection)
    if not found:
        raise NotFound(
            f"files come from gateways, and the dispatchers at {', '.join(config.connect)} know "
            "none that this machine can reach; give one: --connect http://HOST:PORT"
        )
    return found


def _first(error: BaseException) -> BaseException:
    """One of several errors that ended transfers side by side."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# push and pull


async def push(files: Files, name: str, folder: Path, patterns: Sequence[str]) -> Moved:
    """Makes a version of the files of a folder."""
    wanted = Patterns(patterns or ("**",))
    with _opened(folder) as opened:
        try:
            manifest = await asyncio.to_thread(collect, opened, wanted, files.bounds)
        except (Refused, Unmatched) as error:
            raise InvalidInput(f"{folder}: {error}") from None
        upload = fresh_id()
        with bar("pushing") as on_progress:
            pushed = await Pushing(files.client, files.slots, upload).push(
                opened, manifest, on_progress
            )
    request = PublishRequest(pushed.manifest.hex(), pushed.size, upload)
    version = await files.client.publish(name, request)
    return Moved(version, version.files, version.total_bytes, pushed.sent_bytes)


async def pull(
    files: Files,
    name: str,
    number: int | None,
    folder: Path,
    patterns: Sequence[str],
    *,
    replace: bool,
) -> Moved:
    """Puts the files of a version into a folder, which is made if it is missing."""
    version = (await files.client.version(name, number, limit=1)).version
    cache = _cache(files.config)
    pulling = Pulling(files.client, cache, files.slots, near_folder(files.config.filesets.files))
    manifest = await pulling.manifest(bytes.fromhex(version.manifest), files.bounds)
    wanted = chosen(manifest, Patterns(patterns or ("**",)), f"{name}@{version.version}")
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    with _opened(folder) as opened:
        missing = await asyncio.to_thread(missing_files, opened, wanted, replace=replace)
        with bar("pulling") as on_progress:
            await pulling.put(opened, missing, on_progress)
    total = sum(file.size for file in wanted)
    return Moved(version, len(wanted), total, files.client.received_bytes)


def _cache(config: Config) -> BlobCache:
    wanted = config.filesets
    folder = Path(wanted.files_cache) if wanted.files_cache else default_cache()
    return BlobCache(folder, wanted.files_cache_bytes)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        with opened_folder(folder.resolve()) as opened:
            yield opened
    except FileNotFoundError:
        raise NotFound(f"there is no folder {folder}") from None
    except NotADirectoryError:
        raise InvalidInput(f"{folder} is no folder") from None


@contextmanager
def bar(what: str) -> Iterator[OnProgress]:
    """A bar on standard error that shows how far a transfer is; nothing, if that is no terminal."""
    shown = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
