"""How files are stored: pin a manifest, upload what is missing, seal it, publish a version.

The gateway reads the manifest itself and lists its blobs to dispatchers, so that nobody seals a
manifest whose files were never looked at. Dispatchers judge who stores: an attempt by its ticket, a
client by its token, or by where it calls from.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from uuid import UUID

from msgspec import Struct
from starlette.responses import Response

from longshore.errors import InvalidInput, TooLarge, WrongState
from longshore.files import documents as d
from longshore.files.blobs import parse_sha256
from longshore.files.packs import MOST_BODY_BYTES, Unpacking
from longshore.gateway.byte_ranges import given_start
from longshore.gateway.file_keeping import FileKeeping, Grant, portion_of
from longshore.gateway.file_streams import take_body
from longshore.gateway.files import fileset_name, keeping_of
from longshore.gateway.operation import Call, answer
from longshore.model.fileset import BlobRef, Manifest, NewVersion, PinVerdict, StoredBlob


class PackQuery(Struct, frozen=True):
    """For which manifest blobs are uploaded."""

    manifest: d.Sha256
    manifest_size: d.Size
    upload: UUID | None = None


class BlobQuery(Struct, frozen=True):
    """Which blob an upload brings, and for which manifest."""

    size: d.Size
    generation: d.Generation
    manifest: d.Sha256
    manifest_size: d.Size
    upload: UUID | None = None


# what is to be uploaded


async def pin(call: Call) -> Response:
    """Pins a manifest, and says which of its blobs are to be uploaded."""
    wanted = await call.body(d.PinRequest)
    keeping_of(call).check_size(wanted.size)
    manifest = BlobRef(parse_sha256(wanted.manifest), wanted.size)
    needed = await _pinned(call, wanted.upload, manifest, [])
    if needed:
        return answer(d.PinAnswer(needed, wanted.after))
    files = await _stored_manifest(call, manifest)
    blobs, following = portion_of(files, wanted.after)
    needed = await _pinned(call, wanted.upload, manifest, blobs)
    return answer(d.PinAnswer(needed, following))


async def _pinned(
    call: Call, upload: UUID | None, manifest: BlobRef, blobs: Sequence[BlobRef]
) -> tuple[d.NeededBlob, ...]:
    """What dispatchers want uploaded, which is remembered as granted."""
    keeping = keeping_of(call)
    asked = call.connection.files.pin(manifest, blobs, ticket=call.ticket, upload=upload)
    pinned = await asked
    _check(pinned.verdict)
    sizes = {blob.sha256: blob.size for blob in (manifest, *blobs)}
    holder = _holder(call, upload)
    for one in pinned.needed:
        keeping.grant(holder, one.sha256, Grant(sizes[one.sha256], one.generation))
    return tuple(
        d.NeededBlob(one.sha256.hex(), sizes[one.sha256], one.generation) for one in pinned.needed
    )


def _check(verdict: PinVerdict) -> None:
    match verdict:
        case PinVerdict.DONE:
            return
        case PinVerdict.STALE:
            raise WrongState("who stores these files is over: the attempt ended, or the upload did")
        case PinVerdict.INCOMPLETE:
            raise WrongState("not all files are stored; pin the manifest again, and upload them")
        case PinVerdict.TOO_LARGE:
            raise TooLarge("the files have more bytes than this attempt may store")


def _holder(call: Call, upload: UUID | None) -> str:
    """Whose an upload is, in the name of its session file."""
    if call.ticket:
        return blake2b(call.ticket.encode(), digest_size=16).hexdigest()
    if upload is None:
        raise InvalidInput("say which upload this is for: give `upload`, a UUID of your own")
    return upload.hex


async def _stored_manifest(call: Call, manifest: BlobRef) -> Manifest:
    # Its holder wrote it, but a ticket reads inputs only: a manifest is found by its generation.
    keeping = keeping_of(call)
    (generation,) = await call.connection.files.locate([manifest.sha256])
    if generation is None:
        raise WrongState("the manifest is not stored; pin it again, and upload it")
    return await keeping.manifest(manifest, generation)


# bytes


async def upload_blob(call: Call) -> Response:
    """Takes the bytes of a blob, from where they stopped on."""
    sha256, query = parse_sha256(call.name("sha256")), call.query(BlobQuery)
    keeping = keeping_of(call)
    grant = await _granted(call, sha256, query)
    holder = _holder(call, query.upload)
    if not await _is_stored(keeping, sha256, grant):
        offset = await _taken(call, holder, sha256, grant)
        if offset < grant.size:
            return _offset_answer(sha256.hex(), offset, 202)
    await _note(call, query.upload, StoredBlob(sha256, grant.size, grant.generation))
    keeping.used(holder, sha256)
    return _offset_answer(sha256.hex(), grant.size, 201)


async def _is_stored(keeping: FileKeeping, sha256: bytes, grant: Grant) -> bool:
    """Whether the bytes are there, and only dispatchers do not know."""
    size = await keeping.in_thread(keeping.blobs.size, sha256, grant.generation)
    return size == grant.size


async def _taken(call: Call, holder: str, sha256: bytes, grant: Grant) -> int:
    """Takes the body of a request; answers how many bytes are there then. All is a blob."""
    keeping = keeping_of(call)
    start = given_start(call.request.headers, grant.size)
    upload = await keeping.in_thread(
        keeping.blobs.upload, holder, sha256, grant.size, grant.generation
    )
    try:
        if start == 0 and upload.offset:
            # Its sender does not know that some of it is there.
            await keeping.in_thread(upload.restart)
        if start != upload.offset:
            raise WrongState(
                f"the upload is at {upload.offset:,}, and the body begins at {start:,}; ask where "
                "to go on: GET …/upload"
            )
        await take_body(call.request, keeping, upload, call.settings.body_s)
        if upload.is_whole:
            await keeping.in_thread(upload.finish)
        return upload.offset
    finally:
        upload.close()


async def _granted(call: Call, sha256: bytes, query: BlobQuery) -> Grant:
    """What may be uploaded here; asks dispatchers, if another gateway was told."""
    keeping, holder = keeping_of(call), _holder(call, query.upload)
    grant = keeping.granted(holder, sha256)
    if grant is None:
        await _pin_again(call, query, [BlobRef(sha256, query.size)])
        grant = keeping.granted(holder, sha256)
    if grant is None or grant.size != query.size:
        raise WrongState(f"nobody needs the blob {sha256.hex()} now; pin its manifest again")
    return grant


async def _pin_again(call: Call, query: BlobQuery | PackQuery, blobs: Sequence[BlobRef]) -> None:
    """Pins blobs of a manifest that another gateway was told of, or this one before a restart.

    What the manifest does not have is refused: once listed, it would keep all from sealing it.
    """
    manifest = BlobRef(parse_sha256(query.manifest), query.manifest_size)
    others = [blob for blob in blobs if blob != manifest]
    if others:
        sizes = await keeping_of(call).sizes(await _stored_manifest(call, manifest))
        for blob in others:
            if sizes.get(blob.sha256) != blob.size:
                raise WrongState(
                    f"the manifest {query.manifest} has no file of this hash and size: "
                    f"{blob.sha256.hex()}, {blob.size:,} bytes"
                )
    await _pinned(call, query.upload, manifest, others)


async def _note(call: Call, upload: UUID | None, *stored: StoredBlob) -> None:
    requests = call.connection.files
    _check(await requests.note_stored(stored, ticket=call.ticket, upload=upload))


async def upload_pack(call: Call) -> Response:
    """Takes many small blobs in one body."""
    query, keeping = call.query(PackQuery), keeping_of(call)
    holder = _holder(call, query.upload)
    bodies = call.gateway.bodies
    async with bodies.read(call.request, MOST_BODY_BYTES, "the limit of a pack") as data:
        blobs = await keeping.in_thread(_unpacked, data)
        grants = await _all_granted(call, query, [BlobRef(sha, len(one)) for sha, one in blobs])
        some = [(sha, grants[sha].generation, one) for sha, one in blobs]
        await keeping.in_thread(keeping.blobs.store_many, holder, some)
    stored = [StoredBlob(sha, grants[sha].size, grants[sha].generation) for sha, _ in blobs]
    await _note(call, query.upload, *stored)
    for blob in stored:
        keeping.used(holder, blob.sha256)
    return answer(d.StoredPack(len(stored)), 201)


def _unpacked(data: bytes) -> list[tuple[bytes, bytes]]:
    unpacking = Unpacking()
    blobs = list(unpacking.add(data))
    unpacking.finish()
    if not blobs:
        raise InvalidInput("the pack is empty")
    return blobs


async def _all_granted(
    call: Call, query: PackQuery, blobs: Sequence[BlobRef]
) -> dict[bytes, Grant]:
    """What may be uploaded of these; raises if one is not needed, or has another size."""
    keeping, holder = keeping_of(call), _holder(call, query.upload)
    if any(keeping.granted(holder, blob.sha256) is None for blob in blobs):
        await _pin_again(call, query, blobs)
    grants = {}
    for blob in blobs:
        grant = keeping.granted(holder, blob.sha256)
        if grant is None or grant.size != blob.size:
            raise WrongState(
                f"nobody needs the blob {blob.sha256.hex()} now; pin its manifest again"
            )
        grants[blob.sha256] = grant
    return grants


async def tell_offset(call: Call) -> Response:
    """Says how far an upload is."""
    sha256, query = parse_sha256(call.name("sha256")), call.query(BlobQuery)
    keeping = keeping_of(call)
    grant = await _granted(call, sha256, query)
    holder = _holder(call, query.upload)
    offset = await keeping.in_thread(keeping.blobs.offset, holder, sha256, grant.generation)
    if await _is_stored(keeping, sha256, grant):
        offset = grant.size
    return _offset_answer(sha256.hex(), offset, 200)


def _offset_answer(sha256: str, offset: int, status: int) -> Response:
    shown = d.Stored(sha256, offset, status == 201)
    return answer(shown, status, {d.UPLOAD_OFFSET: str(offset)})


# versions


async def seal(call: Call) -> Response:
    """Seals a manifest whose files are all stored."""
    wanted = await call.body(d.SealRequest)
    files = await sealed(call, wanted.manifest, wanted.size, wanted.upload)
    return answer(d.Sealed(len(files.files), files.total_bytes))


async def sealed(call: Call, manifest: str, size: int, upload: UUID | None) -> Manifest:
    """The files of a manifest, which are all stored; raises if they are not."""
    sha256 = parse_sha256(manifest)
    keeping_of(call).check_size(size)
    files = await _stored_manifest(call, BlobRef(sha256, size))
    count = len({file.sha256 for file in files.files})
    verdict = await call.connection.files.seal(sha256, count, ticket=call.ticket, upload=upload)
    _check(verdict)
    return files


async def publish(call: Call) -> Response:
    """Makes a version of an upload, which is sealed with it."""
    name, wanted = fileset_name(call), await call.body(d.PublishRequest)
    files = await sealed(call, wanted.manifest, wanted.size, wanted.upload)
    made = NewVersion(name, parse_sha256(wanted.manifest), len(files.files), files.total_bytes)
    version = await call.connection.files.publish(wanted.upload, made)
    if version is None:
        raise WrongState("the upload is not sealed; pin its manifest again, and upload its files")
    return answer(d.shown_version(version), 201)
