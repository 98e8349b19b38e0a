"""A gateway with files on a real socket, before a dispatcher's memory of filesets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from longshore.client.file_requests import FileRequests
from longshore.client.ids import fresh_id
from longshore.config import FileSettings, GatewaySettings
from longshore.errors import NotFound
from longshore.files.blobs import Blobs
from longshore.files.places import FolderPlace, Place
from longshore.gateway.file_keeping import FileKeeping
from longshore.gateway.operation import Gateway
from longshore.gateway.server import serve
from longshore.model.checkpoint import Checkpoint
from longshore.model.fileset import (
    Collected,
    FilesetVersion,
    FilesetView,
    Needed,
    PinVerdict,
)
from longshore.wire import file_messages as f


class Ledger:
    """What a dispatcher and its store answer, in memory."""

    def __init__(self) -> None:
        self.stored: dict[bytes, tuple[int, int]] = {}
        self.listed: dict[tuple[object, bytes], set[bytes]] = {}
        self.sealed: set[tuple[object, bytes]] = set()
        self.versions: dict[str, list[FilesetVersion]] = {}
        self.notes = 0
        self.checkpoint: Checkpoint | None = None

    def requests(self) -> FileRequests:
        """The requests that it answers."""
        rids = count(1)

        async def exchange(request: Any, within_s: float = 0.0) -> Any:
            return self.answer(request)

        return FileRequests(exchange, lambda: next(rids), fresh_id)

    def answer(self, request: Any) -> Any:
        """The answer to a request."""
        match request:
            case f.PinFiles():
                return self._pin(request)
            case f.NoteStored():
                self.notes += 1
                for blob in request.stored:
                    self.stored[blob.sha256] = (blob.size, blob.generation)
                return PinVerdict.DONE
            case f.SealManifest():
                return self._seal(request)
            case f.PublishUpload():
                return self._publish(request)
            case f.FixInput() | f.ShowVersion():
                found = self.versions.get(request.fileset)
                if not found:
                    raise NotFound(f"there is no fileset {request.fileset}")
                return found[-1] if request.version is None else found[request.version - 1]
            case f.LocateBlobs():
                return tuple(self.stored.get(one, (0, None))[1] for one in request.blobs)
            case f.ListVersions():
                return tuple(reversed(self.versions.get(request.fileset, [])))
            case f.ListFilesets():
                return tuple(
                    FilesetView(latest=some[-1], versions=len(some))
                    for _, some in sorted(self.versions.items())
                )
            case f.SaveCheckpoint(made=made):
                self.checkpoint = Checkpoint(
                    manifest=made.manifest,
                    files=made.files,
                    total_bytes=made.total_bytes,
                    saved_at=datetime.now(UTC),
                )
                return self.checkpoint
            case f.FindCheckpoint():
                return self.checkpoint
            case f.CollectFiles():
                return Collected()
            case f.ListDoomed():
                return ()
        raise AssertionError(request)

    def _pin(self, request: f.PinFiles) -> f.Pinned:
        holder = request.ticket or request.upload
        listed = self.listed.setdefault((holder, request.manifest.sha256), set())
        listed.update(blob.sha256 for blob in request.blobs)
        wanted = (request.manifest, *request.blobs)
        needed = tuple(Needed(one.sha256, 1) for one in wanted if one.sha256 not in self.stored)
        return f.Pinned(PinVerdict.DONE, needed)

    def _seal(self, request: f.SealManifest) -> PinVerdict:
        key = (request.ticket or request.upload, request.manifest)
        listed = self.listed.get(key, set())
        if len(listed) != request.blobs or not listed <= self.stored.keys():
            return PinVerdict.INCOMPLETE
        self.sealed.add(key)
        return PinVerdict.DONE

    def _publish(self, request: f.PublishUpload) -> FilesetVersion | None:
        made = request.made
        if (request.upload, made.manifest) not in self.sealed:
            return None
        return self.add(made.fileset, made.manifest, made.files, made.total_bytes)

    def add(self, name: str, manifest: bytes, files: int, size: int) -> FilesetVersion:
        """Makes a version."""
        some = self.versions.setdefault(name, [])
        version = FilesetVersion(
            fileset=name,
            version=len(some) + 1,
            manifest=manifest,
            files=files,
            total_bytes=size,
            created_at=datetime.now(UTC),
        )
        some.append(version)
        return version


class _Connection:
    """As much of a connection as files need."""

    def __init__(self, files: FileRequests) -> None:
        self.files = files


class FileGateway:
    """A gateway, while it runs. It can be stopped and started on its port."""

    def __init__(self, place: Place, **settings: Any) -> None:
        self.ledger = Ledger()
        self.place = place
        self.settings = FileSettings(**settings)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FileGateway]:
        """Answers while the block runs."""
        connection: Any = _Connection(self.ledger.requests())
        keeping = FileKeeping(Blobs(self.place), self.settings)
        gateway = Gateway(connection, GatewaySettings(http_drain_s=1.0), files=keeping)
        stop, started = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(serve(gateway, self.listening, stop, started.set))
        await started.wait()
        try:
            yield self
        finally:
            stop.set()
            await task
            keeping.close()


@asynccontextmanager
async def gateway_at(folder: Path, **settings: Any) -> AsyncIterator[FileGateway]:
    """A gateway with files in a folder, while the block runs."""
    async with FileGateway(FolderPlace(folder), **settings).serving() as made:
        yield made
