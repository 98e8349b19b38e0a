"""Filesets over HTTP: lists of them, downloads with ranges, and what removes them."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from longshore.core.limits import check_name
from longshore.errors import InvalidInput, NotAuthenticated, NotFound, Unavailable
from longshore.files import documents as d
from longshore.files.blobs import parse_sha256
from longshore.files.changes import Change, changes
from longshore.gateway.bodies import OCTETS
from longshore.gateway.file_keeping import FileKeeping, find_file
from longshore.gateway.file_streams import download, send_pack
from longshore.gateway.operation import Call, answer
from longshore.model.fileset import BlobRef, FileEntry, FilesetVersion, Manifest

LATEST: Final = "latest"
Limit = Annotated[int, Meta(ge=1)]


class FilesetsQuery(Struct, frozen=True):
    """Which filesets to list."""

    after: str = ""
    """The cursor: the `next` of the page before."""
    limit: Limit = 100


class VersionsQuery(Struct, frozen=True):
    """Which versions to list."""

    before: d.Number | None = None
    """The cursor: the `next` of the page before."""
    limit: Limit = 100


class FilesQuery(Struct, frozen=True):
    """Which files of a version to list."""

    after: d.Size = 0
    """The cursor: the `next` of the page before."""
    limit: Limit = 1_000


class ChangesQuery(Struct, frozen=True):
    """Between which versions to compare, and which of the files that differ to list."""

    against: d.Number
    """The version to compare with: what it has is `before`."""
    after: d.Size = 0
    """The cursor: the `next` of the page before."""
    limit: Limit = 1_000


class CollectQuery(Struct, frozen=True):
    """How to collect."""

    dry_run: bool = False
    """Remove nothing; count what nothing needs."""


def keeping_of(call: Call) -> FileKeeping:
    """The files of this gateway; raises if it keeps none."""
    keeping = call.gateway.files
    if keeping is None:
        raise Unavailable("this gateway keeps no files; ask another, or set `files` for it")
    if keeping.why_not:
        raise Unavailable(keeping.why_not)
    return keeping


# looking


async def list_filesets(call: Call) -> Response:
    """Lists filesets by name."""
    query = call.query(FilesetsQuery)
    limit = min(query.limit, call.settings.max_page)
    found = await call.connection.files.filesets(query.after, limit)
    after = found[-1].latest.fileset if len(found) == limit else None
    headers = None if after is None else call.next_link(after=after)
    listed = tuple(
        d.ShownFileset(
            name=one.latest.fileset, versions=one.versions, latest=d.shown_version(one.latest)
        )
        for one in found
    )
    return answer(d.FilesetList(listed, after), headers=headers)


async def list_versions(call: Call) -> Response:
    """Lists the versions of a fileset, newest first."""
    query, name = call.query(VersionsQuery), fileset_name(call)
    limit = min(query.limit, call.settings.max_page)
    found = await call.connection.files.versions(name, query.before, limit)
    if not found and query.before is None:
        raise NotFound(f"there is no fileset {name!r}; `longshore filesets ls` lists them")
    before = found[-1].version if len(found) == limit else None
    headers = None if before is None else call.next_link(before=before)
    return answer(d.VersionList(tuple(map(d.shown_version, found)), before), headers=headers)


async def show_version(call: Call) -> Response:
    """Shows a version, and a page of its files."""
    query = call.query(FilesQuery)
    version, manifest = await version_and_files(call)
    limit = min(query.limit, call.settings.max_page)
    some = manifest.files[query.after : query.after + limit]
    following = query.after + limit
    after = following if following < len(manifest.files) else None
    headers = None if after is None else call.next_link(after=after)
    files = tuple(map(_shown, some))
    shown = d.VersionFiles(version=d.shown_version(version), files=files, next=after)
    return answer(shown, headers=headers)


def _shown(file: FileEntry) -> d.ShownFile:
    return d.ShownFile(file.path, file.size, file.sha256.hex(), file.executable)


async def list_changes(call: Call) -> Response:
    """Lists the files that differ between two versions."""
    query = call.query(ChangesQuery)
    version, found = await changes_since(call, query.against)
    limit = min(query.limit, call.settings.max_page)
    following = query.after + limit
    after = following if following < len(found) else None
    headers = None if after is None else call.next_link(after=after)
    some = tuple(found[query.after : following])
    names = (version.fileset, query.against, version.version)
    return answer(d.VersionChanges(*names, some, after), headers=headers)


async def changes_since(call: Call, against: int) -> tuple[FilesetVersion, list[Change]]:
    """The version that the path names, and the files that differ from an earlier one."""
    version, new = await version_and_files(call)
    other = await call.connection.files.version(version.fileset, against)
    old = await manifest_of(call, other)
    found = await keeping_of(call).in_thread(changes, old.files, new.files)
    return version, found


# downloads


async def download_file(call: Call) -> Response:
    """Sends a file of a version, or a part of it."""
    version, manifest = await version_and_files(call)
    what = f"{version.fileset}@{version.version}"
    blob = find_file(manifest, call.name("path"), what)
    return await _send(call, blob.sha256, blob.size)


async def download_blob(call: Call) -> Response:
    """Sends a blob, or a part of it."""
    return await _send(call, parse_sha256(call.name("sha256")), None)


async def download_pack(call: Call) -> Response:
    """Sends many small blobs in one answer."""
    wanted, keeping = await call.body(d.PackRequest), keeping_of(call)
    names = [parse_sha256(one) for one in wanted.blobs]
    found = await call.connection.files.locate(names, ticket=call.ticket)
    for name, generation in zip(names, found, strict=True):
        if generation is None:
            raise NotFound(f"there is no blob {name.hex()}, or this ticket may not read it")
    blobs = [(name, where) for name, where in zip(names, found, strict=True) if where is not None]
    return StreamingResponse(send_pack(keeping, blobs), media_type=OCTETS)


async def _send(call: Call, sha256: bytes, size: int | None) -> Response:
    keeping = keeping_of(call)
    generation = await located(call, sha256)
    if size is None:
        size = await keeping.in_thread(keeping.blobs.size, sha256, generation)
    if size is None:
        raise NotFound(f"the bytes of the blob {sha256.hex()} are not at this gateway's `files`")
    return await download(call.request, keeping, sha256, generation, size)


async def located(call: Call, sha256: bytes) -> int:
    """The generation under which a blob is stored; raises `NotFound` if it is not."""
    (generation,) = await call.connection.files.locate([sha256], ticket=call.ticket)
    if generation is None:
        raise NotFound(f"there is no blob {sha256.hex()}, or this ticket may not read it")
    return generation


async def version_and_files(call: Call) -> tuple[FilesetVersion, Manifest]:
    """The version that the path names, and its files."""
    version = await version_of(call)
    return version, await manifest_of(call, version)


async def version_of(call: Call) -> FilesetVersion:
    """The version that the path names, by its number or as the latest."""
    name, text = fileset_name(call), call.name("version")
    number = None if text == LATEST else _number(text)
    return await call.connection.files.version(name, number)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(f"{text[:80]!r} is no version; give a number, or {LATEST}")
    return int(text)


async def manifest_of(call: Call, version: FilesetVersion) -> Manifest:
    """The files of a version, by path."""
    sha256, keeping = version.manifest, keeping_of(call)
    generation = await located(call, sha256)
    size = await keeping.in_thread(keeping.blobs.size, sha256, generation)
    if size is None:
        raise NotFound(f"the list of files {sha256.hex()} is not at this gateway's `files`")
    return await keeping.manifest(BlobRef(sha256, size), generation)


def fileset_name(call: Call) -> str:
    """The fileset that the path names."""
    name = call.name("name")
    check_name("fileset", name)
    return name


# inputs of attempts


async def fix_input(call: Call) -> Response:
    """Says which version of a fileset an attempt reads."""
    wanted = await call.body(d.InputRequest)
    if wanted.fileset or not wanted.node:
        check_name("fileset", wanted.fileset)
    version = await call.connection.files.input_version(
        ticket_of_attempt(call), wanted.fileset, wanted.version, wanted.maker, wanted.node
    )
    if version is None and wanted.node:
        raise NotFound(
            f"the job '{wanted.node}' of this group has published nothing, or there is no such job"
        )
    if version is None:
        number = "" if wanted.version is None else f" {wanted.version}"
        maker = f" by job {wanted.maker}" if wanted.maker else ""
        raise NotFound(
            f"there is no version{number} of a fileset '{wanted.fileset}'{maker}, or the attempt "
            "is over"
        )
    return answer(d.shown_version(version))


def ticket_of_attempt(call: Call) -> str:
    """The ticket of the attempt that asks; raises if none does."""
    if not call.ticket:
        raise NotAuthenticated(
            f"this needs the ticket of an attempt: send `Authorization: {d.TICKET_SCHEME} …`"
        )
    return call.ticket


# removing


async def remove_version(call: Call) -> Response:
    """Removes a version, unless a live job has it as its input."""
    name, number = fileset_name(call), _number(call.name("version"))
    return answer(d.Removed(await call.connection.files.remove(name, [number])))


async def collect(call: Call) -> Response:
    """Collects what nothing needs, or says how much that is."""
    dry_run = call.query(CollectQuery).dry_run
    found = await call.connection.files.collect(dry_run=dry_run)
    keeping = call.gateway.files
    removed = 0
    if not dry_run and keeping is not None:
        removed = await keeping.remove_doomed(call.connection.files)
    return answer(d.Unused(found.blobs, found.total_bytes, removed, found.is_over))
