"""Take one guard of filesets away, and the machine notices: that is how we know that it looks.

In memory the model lacks the guard as well, so what notices is what the machine itself knows was
promised. SQLite and PostgreSQL run the statements that they always do, with one guard cut out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from types import ModuleType
from typing import Any, Final

import pytest

from longshore.model.ends import End
from longshore.model.fileset import BlobRef, BlobState, Holder, Needed, PinVerdict, StoredBlob
from longshore.model.job import Ended, Finished, Verdict
from longshore.store.postgres import files_sql, publishing
from longshore.store.postgres.states import OWNED
from longshore.store.sqlite import files as sqlite_files
from longshore.store.sqlite.states import OWNED_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction
from longshore.testing.backends import Backend, MemoryBackend, PostgresBackend, SqliteBackend
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_file_rows import FileRows
from longshore.testing.memory_files import MemoryFiles

from . import fileset_stories as stories
from .fileset_machine import FilesetMachine

Story = Callable[[FilesetMachine], object]


def play(backend: Backend, story: Story) -> None:
    """Plays a story on a store and on the model, to the end at which nothing is left."""
    with asyncio.Runner() as runner:
        machine = FilesetMachine(backend, runner)
        machine.begin()
        try:
            story(machine)
            machine.no_version_lacks_a_blob()
            machine.no_job_has_two_versions_of_a_fileset_in_a_round()
            machine.empty()
        finally:
            machine.close()


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("story", stories.STORIES)
def test_nothing_is_noticed_while_every_guard_is_there(backend: Backend, story: Story) -> None:
    play(backend, story)


# the model in memory

_finish, _want, _input_version = MemoryStore._finish, FileRows.want, MemoryFiles.input_version


def with_round(verb: str, round: Callable[[MemoryFiles, Holder], int]) -> Callable[..., Any]:
    """A verb that takes this for the round of a holder."""
    real: Callable[..., Awaitable[Any]] = getattr(MemoryFiles, verb)

    async def twin(self: MemoryFiles, *given: object, **named: object) -> Any:
        self.__dict__["_round"] = partial(round, self)
        try:
            return await real(self, *given, **named)
        finally:
            del self.__dict__["_round"]

    return twin


def any_token(store: MemoryFiles, holder: Holder) -> int:
    """The round of a holder's job, whichever attempt it is of."""
    row = store._jobs.get(holder.id)
    return 0 if row is None else row.job.round


def no_seal(_self: MemoryFiles, end: End) -> End:
    return end


async def seals_all(self: MemoryFiles, holder: Holder, manifest: bytes, _blobs: int) -> PinVerdict:
    self._files.manifests[manifest].pins[holder] = True
    return PinVerdict.DONE


def doomed_is(state: BlobState) -> Callable[[FileRows, BlobRef, datetime], Needed | None]:
    """A blob that is pinned while it is doomed is in this state, under its old generation."""

    def want(self: FileRows, blob: BlobRef, now: datetime) -> Needed | None:
        row = self.blobs.get(blob.sha256)
        if row is not None and row.state is BlobState.DOOMED:
            row.state = state
        return _want(self, blob, now)

    return want


async def notes_all(self: MemoryFiles, _holder: Holder, stored: Sequence[StoredBlob]) -> PinVerdict:
    for one in stored:
        self._files.blobs[one.sha256].state = BlobState.STORED
    return PinVerdict.DONE


async def forgets_all(self: MemoryFiles, gone: Sequence[Needed]) -> int:
    return len([self._files.blobs.pop(one.sha256, None) for one in gone])


async def removes_all(self: MemoryFiles, fileset: str, versions: Sequence[int]) -> Sequence[int]:
    known = self._files.versions
    return [one for one in versions if known.pop((fileset, one), None) is not None]


async def fixes_nothing(self: MemoryFiles, *given: Any) -> Any:
    self._files.inputs.clear()
    return await _input_version(self, *given)


def publishes_repeats(
    self: MemoryStore, end: End, ready: Counter[int], ended: list[Ended]
) -> Finished:
    done = _finish(self, end, ready, ended)
    if done.verdict is Verdict.ALREADY_RECORDED:
        self._publish_end(end, self._jobs[end.job].job.round)
    return done


def pinned_only(self: FileRows, manifest: bytes) -> bool:
    return bool(self.manifests[manifest].pins)


def published_only(self: FileRows, manifest: bytes) -> bool:
    return any(one.manifest == manifest for one in self.versions.values())


IN_MEMORY: Final[dict[str, tuple[Story, type, str, object]]] = {
    "an end needs no seal": (stories.end_without_a_seal, MemoryFiles, "_with_versions", no_seal),
    "a seal needs no bytes": (stories.seal_before_the_upload, MemoryFiles, "seal", seals_all),
    "a stale token pins": (stories.late_pin, MemoryFiles, "pin", with_round("pin", any_token)),
    "a stale token notes": (
        *(stories.late_note, MemoryFiles, "note_stored"),
        with_round("note_stored", any_token),
    ),
    "a stale token seals": (stories.late_seal, MemoryFiles, "seal", with_round("seal", any_token)),
    "a listed blob is doomed": (stories.shared_blob, FileRows, "lists", lambda *_: False),
    "a doomed blob keeps its generation": (
        *(stories.pin_of_a_doomed_blob, FileRows, "want"),
        doomed_is(BlobState.MISSING),
    ),
    "a doomed blob counts as stored": (
        *(stories.pin_of_a_doomed_blob, FileRows, "want"),
        doomed_is(BlobState.STORED),
    ),
    "an old generation is noted": (
        *(stories.note_of_an_old_generation, MemoryFiles, "note_stored", notes_all),
    ),
    "a pinned blob is forgotten": (
        *(stories.slow_removal, MemoryFiles, "forget_blobs", forgets_all),
    ),
    "an input is removed": (
        *(stories.removal_of_an_input, MemoryFiles, "remove_versions", removes_all),
    ),
    "an input is not fixed": (
        *(stories.input_of_two_attempts, MemoryFiles, "input_version", fixes_nothing),
    ),
    "a repeat publishes": (stories.repeated_end, MemoryStore, "_finish", publishes_repeats),
    "a pin of the living is taken": (
        *(stories.collection_before_the_end, MemoryFiles, "forget_manifests"),
        with_round("forget_manifests", lambda *_: 0),
    ),
    "versions keep nothing": (stories.collection_after_a_push, FileRows, "needs", pinned_only),
    "pins keep nothing": (stories.collection_of_another_pin, FileRows, "needs", published_only),
}


@pytest.mark.parametrize("guard", IN_MEMORY)
def test_the_promises_notice(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story, where, name, twin = IN_MEMORY[guard]
    monkeypatch.setattr(where, name, twin)
    with pytest.raises(AssertionError):
        play(MemoryBackend(), story)


# SQLite: a part of a statement, and what stands there without the guard

_sqlite_want = sqlite_files._want


def keeps_generation(tx: Transaction, sha256: bytes, size: int) -> Needed | None:
    query = "SELECT generation FROM blob WHERE sha256 = ? AND state = 2"
    before = tx.execute(query, (sha256,)).fetchone()
    needed = _sqlite_want(tx, sha256, size)
    if before is None:
        return needed
    tx.execute("UPDATE blob SET generation = ? WHERE sha256 = ?", (*before, sha256))
    return Needed(sha256, *before)


IN_SQLITE: Final[dict[str, tuple[Story, str, str]]] = {
    "an end needs no seal": (stories.end_without_a_seal, " AND sealed = 1", ""),
    "any seal will do": (
        stories.end_with_the_seal_of_another,
        "AND holder = ? AND token = ? AND sealed = 1",
        "AND ? <> ? AND sealed = 1",
    ),
    "a seal needs no bytes": (
        stories.seal_before_the_upload,
        "b.state IS NOT ?2 OR b.size <> m.size",
        "?2 IS NULL",
    ),
    **{
        f"a stale token {what}": (
            story,
            f"SELECT round FROM job WHERE id = ? AND token = ? AND state IN {OWNED_LIST}",
            "SELECT round FROM job WHERE id = ? AND ? IS NOT NULL",
        )
        for what, story in (
            ("pins", stories.late_pin),
            ("notes", stories.late_note),
            ("seals", stories.late_seal),
        )
    },
    "a listed blob is doomed": (
        stories.shared_blob,
        "SELECT 1 FROM manifest_blob WHERE blob = ? LIMIT 1",
        "SELECT 1 FROM manifest_blob WHERE blob = ? AND 0 LIMIT 1",
    ),
    "an old generation is noted": (
        stories.note_of_an_old_generation,
        "AND generation = ? AND state = ?",
        "AND ? IS NOT NULL AND state = ?",
    ),
    "a pinned blob is forgotten": (
        stories.slow_removal,
        "AND generation = ? AND state = 2",
        "AND ? IS NOT NULL",
    ),
    "an input is removed": (stories.removal_of_an_input, "AND j.ended_at IS NULL", "AND 0"),
    "an input is not fixed": (
        stories.input_of_two_attempts,
        "INSERT INTO job_input VALUES (?, ?, ?, ?, ?)",
        "INSERT INTO job_input SELECT ?, ?, ?, ?, ? WHERE 0",
    ),
    "a pin of the living is taken": (
        stories.collection_before_the_end,
        "SELECT 1 FROM job WHERE id = ? AND token = ?",
        "SELECT 1 FROM job WHERE 0 AND id = ? AND token = ?",
    ),
    "versions keep nothing": (
        stories.collection_after_a_push,
        "EXISTS (SELECT 1 FROM fileset_version WHERE manifest = ?1)",
        "0",
    ),
    "pins keep nothing": (
        stories.collection_of_another_pin,
        "OR EXISTS (SELECT 1 FROM manifest_pin WHERE manifest = ?1)",
        "",
    ),
}


@pytest.mark.parametrize("guard", IN_SQLITE)
def test_sqlite_without_a_guard_is_noticed(
    sqlite_backend: SqliteBackend, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, there, instead = IN_SQLITE[guard]
    opened, met = Snapshot.__init__, set()

    def rewriting(self: Snapshot, connection: Any, now: int) -> None:
        opened(self, connection, now)

        def execute(query: str, *values: Any) -> Any:
            met.add(there in query)
            return connection.execute(query.replace(there, instead), *values)

        self.execute = execute

    monkeypatch.setattr(Snapshot, "__init__", rewriting)
    with pytest.raises(AssertionError):
        play(sqlite_backend, story)
    assert True in met, "there is no such statement any more"


def test_sqlite_that_keeps_the_generation_of_a_doomed_blob_is_noticed(
    sqlite_backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_files, "_want", keeps_generation)
    with pytest.raises(AssertionError, match="a generation used twice"):
        play(sqlite_backend, stories.pin_of_a_doomed_blob)


# PostgreSQL: the same, statement by statement

ANY_TOKEN: Final = (
    *(files_sql, "HOLD_ATTEMPT"),
    f"AND token = $2 AND state IN ({OWNED})",
    "AND $2::bigint IS NOT NULL",
)
IN_POSTGRES: Final[dict[str, tuple[Story, ModuleType, str, str, str]]] = {
    "an end needs no seal": (
        *(stories.end_without_a_seal, publishing, "_SEALED", "WHERE p.sealed", ""),
    ),
    "any seal will do": (
        *(stories.end_with_the_seal_of_another, publishing, "_SEALED"),
        "AND p.holder = i.holder AND p.token = i.token",
        "",
    ),
    "a seal needs no bytes": (
        *(stories.seal_before_the_upload, files_sql, "IS_WHOLE", "b.state = 1 AND ", ""),
    ),
    "a stale token pins": (stories.late_pin, *ANY_TOKEN),
    "a stale token notes": (stories.late_note, *ANY_TOKEN),
    "a stale token seals": (stories.late_seal, *ANY_TOKEN),
    "a listed blob is doomed": (
        *(stories.shared_blob, files_sql, "DOOM"),
        "WHERE m.blob = sha256",
        "WHERE m.blob = sha256 AND false",
    ),
    "a doomed blob keeps its generation": (
        *(stories.pin_of_a_doomed_blob, files_sql, "WANT_BLOBS"),
        "generation = CASE b.state WHEN 2 THEN excluded.generation ELSE b.generation END",
        "generation = b.generation",
    ),
    "a doomed blob counts as stored": (
        *(stories.pin_of_a_doomed_blob, files_sql, "WANT_BLOBS"),
        "state = CASE b.state WHEN 2 THEN 0 ELSE b.state END",
        "state = CASE b.state WHEN 2 THEN 1 ELSE b.state END",
    ),
    "an old generation is noted": (
        *(stories.note_of_an_old_generation, files_sql, "STORED"),
        "AND b.generation = i.generation",
        "",
    ),
    "a pinned blob is forgotten": (
        *(stories.slow_removal, files_sql, "FORGET_BLOBS"),
        "AND b.generation = i.generation\n    WHERE b.state = 2",
        "",
    ),
    "an input is removed": (
        *(stories.removal_of_an_input, files_sql, "REMOVE", "AND j.round = i.round", "AND false"),
    ),
    "an input is not fixed": (
        *(stories.input_of_two_attempts, files_sql, "FIX"),
        files_sql.FIX,
        "SELECT $1::uuid, $2::integer, $3::text, $4::bigint, $5::bigint",
    ),
    "a pin of the living is taken": (
        *(stories.collection_before_the_end, files_sql, "DROP_PINS"),
        "WHERE p.token <> 0",
        "WHERE false",
    ),
    "versions keep nothing": (
        *(stories.collection_after_a_push, files_sql, "IS_NEEDED"),
        "EXISTS (SELECT FROM longshore.fileset_version WHERE manifest = $1)",
        "false",
    ),
    "pins keep nothing": (
        *(stories.collection_of_another_pin, files_sql, "IS_NEEDED"),
        "OR EXISTS (SELECT FROM longshore.manifest_pin WHERE manifest = $1)",
        "",
    ),
}


@pytest.mark.parametrize("guard", IN_POSTGRES)
def test_postgres_without_a_guard_is_noticed(
    postgres_backend: PostgresBackend, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, module, name, there, instead = IN_POSTGRES[guard]
    statement: str = getattr(module, name)
    assert there in statement, "there is no such guard any more"
    monkeypatch.setattr(module, name, statement.replace(there, instead))
    with pytest.raises(AssertionError):
        play(postgres_backend, story)
