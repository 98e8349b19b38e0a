"""Filesets in the PostgreSQL store: pins, blobs, versions, and what nothing needs any more.

Theory. A manifest lists blobs, and stays while a version or a checkpoint leads to it, or a pin
holds it. A blob stays while a manifest lists it. What may have become free is marked `loose` by who
takes a version, a checkpoint, a pin or a listing away, so that a collection looks at nothing else.
It locks the loose row, asks in a later statement whether something needs it, and only then removes
it:

- who pins locks the manifest before it lists anything, and each blob as it does. So either the
  collection sees the listing, or the pin sees what the collection did: a doomed blob, which is to
  be stored anew under a new generation;
- an attempt's pin is removed only when its token does not count any more. The end that publishes
  commits the version and the end of the token together, so one of the two is always seen;
- a blob that a manifest lists is never doomed. So `seal` needs no locks of blobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from longshore.errors import InvalidInput
from longshore.model.fileset import (
    BlobRef,
    BlobState,
    FilesetVersion,
    FilesetView,
    Holder,
    Needed,
    NewVersion,
    PinVerdict,
    StoredBlob,
)
from longshore.payload.references import BESIDE
from longshore.store.postgres import files_sql as sql
from longshore.store.postgres.checkpoints import PostgresCheckpoints, drop_dead
from longshore.store.postgres.connections import Again, ConnectionPool, Transaction
from longshore.store.postgres.publishing import insert_versions
from longshore.store.rows import INT64, LARGEST_INT, clean, other_size

FARTHEST_S: Final = 1e9
UNLISTED: Final = 5_000
"""So many listings of a manifest that is forgotten go in one transaction."""


class PostgresFiles(PostgresCheckpoints):
    """The verbs about filesets."""

    _keeping: ConnectionPool
    _reading: ConnectionPool

    # pins

    async def pin(
        self,
        holder: Holder,
        manifest: BlobRef,
        blobs: Sequence[BlobRef],
        most_bytes: int | None = None,
    ) -> tuple[PinVerdict, Sequence[Needed]]:
        """Pins a manifest and lists some of its blobs; answers which must be uploaded."""
        sizes = {blob.sha256: blob.size for blob in (*blobs, manifest)}
        hashes = sorted(sizes)
        columns = hashes, [min(sizes[one], LARGEST_INT) for one in hashes]

        async def work(tx: Transaction) -> tuple[PinVerdict, Sequence[Needed]]:
            if holder.is_attempt and not await _is_alive(tx, holder):
                return PinVerdict.STALE, ()
            await tx.fetch(sql.PIN, manifest.sha256)
            await tx.fetch(sql.PIN_HOLDER, manifest.sha256, holder.id, holder.token)
            rows = await tx.fetch(sql.WANT_BLOBS, *columns)
            [listed] = await tx.fetch(sql.LIST_BLOBS, manifest.sha256, *columns)
            if most_bytes is not None and listed["total_bytes"] > most_bytes:
                return PinVerdict.TOO_LARGE, ()
            missing = [row for row in rows if row["state"] != BlobState.STORED]
            for row in rows:
                if row["state"] == BlobState.STORED and row["size"] != sizes[row["sha256"]]:
                    raise InvalidInput(other_size(row["sha256"], row["size"]))
            return PinVerdict.DONE, [Needed(row["sha256"], row["generation"]) for row in missing]

        return await self._keeping.run(work)

    async def note_stored(self, holder: Holder, stored: Sequence[StoredBlob]) -> PinVerdict:
        """Blobs are stored whole; incomplete if one of them must be stored anew."""
        known = {blob.sha256: blob for blob in stored}
        columns = [(key, min(known[key].size, LARGEST_INT), known[key].generation) for key in known]

        async def work(tx: Transaction) -> PinVerdict:
            if not await _is_held(tx, holder):
                return PinVerdict.STALE
            if not known:
                return PinVerdict.DONE
            rows = await tx.fetch(sql.HOLD_BLOBS, sorted(known))
            await tx.fetch(sql.STORED, *zip(*columns, strict=True))
            done = [row for row in rows if _is_stored_by(row, known[row["sha256"]])]
            return PinVerdict.DONE if len(done) == len(known) else PinVerdict.INCOMPLETE

        return await self._keeping.run(work)

    async def seal(self, holder: Holder, manifest: bytes, blobs: int) -> PinVerdict:
        """All blobs of a pinned manifest are listed and stored, so many."""
        key = manifest, holder.id, holder.token

        async def work(tx: Transaction) -> PinVerdict:
            if holder.is_attempt and not await _is_alive(tx, holder):
                return PinVerdict.STALE
            pins = await tx.fetch(sql.HOLD_PIN, *key)
            if not pins:
                return PinVerdict.STALE
            [found] = await tx.fetch(sql.IS_WHOLE, manifest)
            if not found["is_stored"] or found["blobs"] != blobs:
                return PinVerdict.INCOMPLETE
            await tx.fetch(sql.SEAL, *key)
            return PinVerdict.DONE

        return await self._keeping.run(work)

    # versions

    async def publish(self, upload: UUID, made: NewVersion, by: str) -> FilesetVersion | None:
        """Makes a version of what an upload has sealed, once; None if it has not."""

        async def work(tx: Transaction) -> FilesetVersion | None:
            for row in await tx.fetch(sql.OF_UPLOAD, upload, made.fileset):
                tx.rest_on_found()
                return _version(row)
            pins = await tx.fetch(sql.HOLD_PIN, made.manifest, upload, 0)
            if not pins or not pins[0]["sealed"]:
                return None
            [new] = await insert_versions(tx, [(upload, made, by)])
            return _version(new)

        return await self._keeping.run(work)

    async def input_version(
        self, holder: Holder, fileset: str, version: int | None
    ) -> FilesetVersion | None:
        """The version that an attempt reads, the same for all attempts of a round."""
        asked = 0 if version is None else version
        if asked not in INT64:
            return None

        async def work(tx: Transaction) -> FilesetVersion | None:
            round = await _is_alive(tx, holder)
            if not round:
                return None
            for row in await tx.fetch(sql.FIXED, holder.id, round, fileset, asked):
                tx.rest_on_found()
                return _version(row)
            query = sql.NEWEST if version is None else sql.ONE_VERSION
            wanted = (fileset,) if version is None else (fileset, version)
            rows = await tx.fetch(f"{query} FOR KEY SHARE", *wanted)
            if not rows and await tx.fetch(query, *wanted):
                raise Again  # one was removed a moment ago, and there is another
            if not rows:
                return None
            [found] = rows
            if not await tx.fetch(sql.FIX, holder.id, round, fileset, asked, found["version"]):
                raise Again  # the same attempt has just asked the same
            return _version(found)

        return await self._keeping.run(work)

    async def version_of_job(self, job: UUID, fileset: str) -> FilesetVersion | None:
        """What the last round of a job that published this fileset has made."""
        return _first(await self._reading.fetch(sql.OF_JOB, job, clean(fileset)))

    async def versions_of_node(self, job: UUID, key: str) -> list[FilesetVersion]:
        """What the job with this key, in the group of this job, has made in its last round."""
        is_beside = key.startswith(BESIDE)
        wanted = clean(key.removeprefix(BESIDE) if is_beside else key)
        rows = await self._reading.fetch(sql.OF_NODE, job, wanted, is_beside)
        return [_version(row) for row in rows if row["depth"] == rows[0]["depth"]]

    async def filesets(self, after: str, most: int) -> list[FilesetView]:
        """Filesets that have versions, by name, after this one."""
        rows = await self._reading.fetch(sql.FILESETS, clean(after), min(most, LARGEST_INT))
        return [FilesetView(latest=_version(row), versions=row["versions"]) for row in rows]

    async def fileset_versions(
        self, fileset: str, before: int | None, most: int
    ) -> list[FilesetVersion]:
        """The versions of a fileset, newest first, below this number."""
        below = LARGEST_INT if before is None else max(0, min(before, LARGEST_INT))
        rows = await self._reading.fetch(sql.VERSIONS, clean(fileset), below, most)
        return [_version(row) for row in rows]

    async def fileset_version(self, fileset: str, version: int | None) -> FilesetVersion | None:
        """One version, or the newest that is not partial."""
        if version is None:
            return _first(await self._reading.fetch(sql.NEWEST, clean(fileset)))
        if version not in INT64:
            return None
        return _first(await self._reading.fetch(sql.ONE_VERSION, clean(fileset), version))

    async def remove_versions(self, fileset: str, versions: Sequence[int]) -> list[int]:
        """Removes versions, except those that live jobs or groups may need; answers which."""
        wanted = sorted({version for version in versions if version in INT64})

        async def work(tx: Transaction) -> list[int]:
            await tx.fetch(sql.HOLD_VERSIONS, fileset, wanted)
            # A later statement: what was fixed as an input while this one waited is seen.
            rows = await tx.fetch(sql.REMOVE, fileset, wanted)
            await _loosen(tx, {row["manifest"] for row in rows})
            return sorted(row["version"] for row in rows)

        return await self._keeping.run(work)

    async def blob_generations(
        self, blobs: Sequence[bytes], reader: Holder | None = None
    ) -> list[int | None]:
        """Under which generation each blob is stored, as far as the reader may know."""
        if reader is None:
            rows = await self._reading.fetch(sql.GENERATIONS, list(blobs))
        elif reader.token not in INT64:
            rows = []
        else:
            of = reader.id, reader.token
            rows = await self._reading.fetch(sql.READABLE, list(blobs), *of)
        known = {row["sha256"]: row["generation"] for row in rows}
        return [known.get(blob) for blob in blobs]

    # what nothing needs

    async def forget_manifests(self, older_than_s: float, most: int = 1000) -> int:
        """Forgets pins of the dead, and manifests that nothing needs."""
        age_s = min(older_than_s, FARTHEST_S)
        done = await self._keeping.run(lambda tx: _drop_pins(tx, age_s, most))
        done += await self._keeping.run(lambda tx: drop_dead(tx, most))
        for _ in range(most):
            forgotten = await self._keeping.run(lambda tx: _forget_one(tx, age_s))
            if not forgotten:
                break
            done += 1
        return done

    async def doom_blobs(self, older_than_s: float, most: int = 1000) -> list[BlobRef]:
        """Dooms blobs of no manifest that nobody has touched for so long."""

        async def work(tx: Transaction) -> list[asyncpg.Record]:
            rows = await tx.fetch(sql.LOOSE_BLOBS, min(older_than_s, FARTHEST_S), most)
            # A later statement: it sees what whoever held these rows before has listed.
            return await tx.fetch(sql.DOOM, [row["sha256"] for row in rows]) if rows else []

        while True:
            rows = await self._keeping.run(work)
            doomed = [BlobRef(row["sha256"], row["size"]) for row in rows if row["doomed"]]
            if doomed or not rows:
                return doomed

    async def doomed_blobs(self, older_than_s: float, most: int = 1000) -> list[StoredBlob]:
        """Blobs that were doomed so long ago, with the generations whose bytes can go."""
        rows = await self._reading.fetch(sql.DOOMED, min(older_than_s, FARTHEST_S), most)
        return [StoredBlob(row["sha256"], row["size"], row["generation"]) for row in rows]

    async def forget_blobs(self, gone: Sequence[Needed]) -> int:
        """The bytes of these doomed blobs are gone; answers how many nobody pinned meanwhile."""
        columns = [one.sha256 for one in gone], [one.generation for one in gone]
        return len(await self._keeping.fetch(sql.FORGET_BLOBS, *columns)) if gone else 0

    async def unused_bytes(self) -> tuple[int, int]:
        """How many blobs nothing needs, and their bytes."""
        [row] = await self._reading.fetch(sql.UNUSED)
        return row["blobs"], row["size"]

    async def bind_folder(self, folder: str) -> str:
        """The id of the place where blobs lie; the first that asks sets it."""

        async def work(tx: Transaction) -> str:
            rows = await tx.fetch(sql.BIND, clean(folder))
            if not rows:
                raise Again  # another has just set it
            tx.rest_on_found()
            bound: str = rows[0]["folder"]
            return bound

        return await self._keeping.run(work)


async def _is_alive(tx: Transaction, holder: Holder) -> int:
    """The round of the attempt that holds, whose job is locked; 0 if it is over."""
    if holder.token not in INT64:
        return 0
    for row in await tx.fetch(sql.HOLD_ATTEMPT, holder.id, holder.token):
        round: int = row["round"]
        return round
    return 0


async def _is_held(tx: Transaction, holder: Holder) -> bool:
    """Whether a holder is alive: an attempt, or an upload that has pinned something."""
    if holder.is_attempt:
        return bool(await _is_alive(tx, holder))
    return bool(await tx.fetch(sql.TOUCH_UPLOAD, holder.id))


def _is_stored_by(row: asyncpg.Record, said: StoredBlob) -> bool:
    """Whether a blob is stored, now that somebody says so; `row` is how it was before."""
    if row["state"] == BlobState.STORED:
        return True
    is_wanted: bool = row["state"] == BlobState.MISSING and row["generation"] == said.generation
    return is_wanted


async def _loosen(tx: Transaction, manifests: set[bytes]) -> None:
    """Has a collection look at manifests that something has just let go."""
    if manifests:
        await tx.fetch(sql.HOLD_MANIFESTS, sorted(manifests))
        await tx.fetch(sql.LOOSEN, list(manifests))


async def _drop_pins(tx: Transaction, age_s: float, most: int) -> int:
    """Removes pins of the dead that are so old; answers how many.

    It locks the manifests first, as who pins does, and passes over those that others hold.
    """
    old = await tx.fetch(sql.OLD_PINS, age_s, most)
    if not old:
        return 0
    held = await tx.fetch(sql.HOLD_FREE_MANIFESTS, [row["manifest"] for row in old])
    free = [row["sha256"] for row in held]
    columns = zip(*((row["manifest"], row["holder"], row["token"]) for row in old), strict=True)
    rows = await tx.fetch(sql.DROP_PINS, *columns, age_s, free)
    if rows:
        await tx.fetch(sql.LOOSEN, list({row["manifest"] for row in rows}))
    return len(rows)


async def _forget_one(tx: Transaction, age_s: float) -> bool:
    """Looks at one loose manifest: keeps it, or removes a part of what it lists, or all of it."""
    rows = await tx.fetch(sql.LOOSE_MANIFEST, age_s)
    if not rows:
        return False
    manifest = rows[0]["sha256"]
    [found] = await tx.fetch(sql.IS_NEEDED, manifest)
    if found["needed"]:
        await tx.fetch(sql.KEEP_MANIFEST, manifest)
        return True
    gone = sorted(row["blob"] for row in await tx.fetch(sql.UNLIST, manifest, UNLISTED))
    await tx.fetch(sql.HOLD_BLOBS, gone)
    await tx.fetch(sql.LOOSEN_BLOBS, gone)
    if len(gone) < UNLISTED:
        await tx.fetch(sql.FORGET_MANIFEST, manifest)
    return True


def _first(rows: Sequence[asyncpg.Record]) -> FilesetVersion | None:
    return _version(rows[0]) if rows else None


def _version(row: asyncpg.Record) -> FilesetVersion:
    return FilesetVersion(
        fileset=row["fileset"],
        version=row["version"],
        manifest=row["manifest"],
        files=row["files"],
        total_bytes=row["total_bytes"],
        created_at=row["created_at"],
        partial=row["partial"],
        job=row["maker"] if row["round"] else None,
        round=row["round"],
        by=row["made_by"],
    )
