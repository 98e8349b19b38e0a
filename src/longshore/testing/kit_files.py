"""Filesets in a test kit: versions in the kit's store, bytes in a folder that goes with the kit.

What is taken, what is refused and what it is called is decided by the code that workers have. Only
the way is short: no gateway, no cache.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from longshore.config import FileSettings
from longshore.core.checkpoints import check_checkpoint
from longshore.core.file_paths import check_path
from longshore.core.publishing import check_fileset, made_by_node
from longshore.errors import InvalidInput, NotFound
from longshore.files.beneath import READ, made_folder, opened, opened_folder
from longshore.files.collect import Bounds, Refused, Unmatched, collect
from longshore.files.copying import copy_blob
from longshore.files.patterns import Patterns
from longshore.files.place import make_way, put_blob
from longshore.files.pulling import chosen
from longshore.files.worker_files import OF_INPUTS, OF_OUTPUTS, opened_output, told
from longshore.model.attempt import Assignment
from longshore.model.checkpoint import CheckpointView, NewCheckpoint
from longshore.model.fileset import (
    BlobRef,
    FileEntry,
    FilesetVersion,
    Holder,
    Manifest,
    NewVersion,
    PinVerdict,
    StoredBlob,
    decode_manifest,
    encode_manifest,
)
from longshore.model.program import Input, Outcome, Output
from longshore.ports.files import FilesFailed, OnProgress, Saving
from longshore.testing.inline_dispatcher import InlineDispatcher

_ALL: Final = ("**",)


class KitFilesets:
    """The filesets of a kit: `push` makes a version, `pull` reads one."""

    def __init__(self, dispatcher: InlineDispatcher) -> None:
        self._dispatcher = dispatcher
        self._folder = tempfile.TemporaryDirectory(prefix="longshore-kit-")
        settings = FileSettings()
        self._bounds = Bounds(settings.max_fileset_bytes, settings.max_fileset_files)

    def close(self) -> None:
        """Removes the bytes."""
        self._folder.cleanup()

    # for tests

    def push(self, fileset: str, files: Mapping[str, str | bytes] | Path) -> int:
        """Makes a version of these files, by path, or of a folder; answers its number."""
        check_fileset(fileset)
        if isinstance(files, Path):
            return self._push_folder(fileset, files)
        with tempfile.TemporaryDirectory(prefix="longshore-kit-") as made:
            for path, content in files.items():
                target = Path(made, *check_path(path))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.encode() if isinstance(content, str) else content)
            return self._push_folder(fileset, Path(made))

    def _push_folder(self, fileset: str, path: Path) -> int:
        upload = Holder(uuid4())
        try:
            with opened_folder(path) as folder:
                made = self.stored(upload, fileset, folder, _ALL)
        except (Refused, Unmatched) as error:
            raise InvalidInput(f"fileset '{fileset}': {error}") from None
        store = self._dispatcher.store
        version = self._dispatcher.at_once(store.publish(upload.id, made, "test"))
        assert version is not None, "nothing is collected in a kit"
        return version.version

    def pull(self, fileset: str, version: int | None = None) -> dict[str, bytes]:
        """The files of a version, or of the newest, by path; raises `NotFound`."""
        store = self._dispatcher.store
        found = self._dispatcher.at_once(store.fileset_version(fileset, version))
        if found is None:
            which = "" if version is None else f" {version}"
            raise NotFound(f"there is no version{which} of a fileset '{fileset}'; push one")
        return {
            file.path: self._blob(file.sha256).read_bytes()
            for file in self.manifest(found.manifest).files
        }

    # for attempts

    def manifest(self, sha256: bytes) -> Manifest:
        """The files of a version."""
        return decode_manifest(self._blob(sha256).read_bytes())

    def put(self, folder: int, files: Sequence[FileEntry]) -> None:
        """Copies files below an open folder."""
        for file in files:
            with self._blob(file.sha256).open("rb") as source:
                put_blob(folder, file, source.fileno())

    def stored(
        self, holder: Holder, fileset: str, folder: int, patterns: Sequence[str]
    ) -> NewVersion:
        """Keeps the files of an open folder that match, sealed by a holder."""
        manifest = collect(folder, Patterns(patterns), self._bounds)
        for file in manifest.files:
            self._keep(folder, file)
        data = encode_manifest(manifest)
        whole = BlobRef(hashlib.sha256(data).digest(), len(data))
        self._blob(whole.sha256).write_bytes(data)
        self._seal(holder, whole, {one.sha256: one.size for one in manifest.files})
        return NewVersion(fileset, whole.sha256, len(manifest.files), manifest.total_bytes)

    def _keep(self, folder: int, file: FileEntry) -> None:
        *way, name = check_path(file.path)
        with opened(folder, way) as inside:
            source = os.open(name, READ, dir_fd=inside)
            try:
                with self._blob(file.sha256).open("wb") as target:
                    copy_blob(source, target.fileno(), file.sha256)
            finally:
                os.close(source)

    def _seal(self, holder: Holder, manifest: BlobRef, sizes: Mapping[bytes, int]) -> None:
        store, at_once = self._dispatcher.store, self._dispatcher.at_once
        blobs = [BlobRef(*one) for one in sizes.items()]
        verdict, needed = at_once(store.pin(holder, manifest, blobs))
        known = {**sizes, manifest.sha256: manifest.size}
        stored = [StoredBlob(one.sha256, known[one.sha256], one.generation) for one in needed]
        if verdict is PinVerdict.DONE:
            verdict = at_once(store.note_stored(holder, stored))
        if verdict is PinVerdict.DONE:
            verdict = at_once(store.seal(holder, manifest.sha256, len(blobs)))
        if verdict is not PinVerdict.DONE:
            raise FilesFailed(Outcome.TRANSFER_FAILED, f"the attempt is over: {verdict}")

    def _blob(self, sha256: bytes) -> Path:
        return Path(self._folder.name, sha256.hex())

    def of(self, assignment: Assignment) -> AttemptFiles:
        """The files of one attempt."""
        return AttemptFiles(self, self._dispatcher, assignment)


class AttemptFiles:
    """A `ports.Files` for one attempt in a kit; it needs no ticket."""

    def __init__(
        self, filesets: KitFilesets, dispatcher: InlineDispatcher, assignment: Assignment
    ) -> None:
        self._filesets = filesets
        self._dispatcher = dispatcher
        self._holder = Holder(assignment.job, assignment.token)

    async def bring(self, ticket: str, wanted: Input, into: Path, on_progress: OnProgress) -> None:
        """Puts the files of an input below `wanted.path`."""
        with told(f"the input {wanted.called}", OF_INPUTS):
            version = self._version(wanted)
            manifest = self._filesets.manifest(version.manifest)
            files = chosen(manifest, Patterns(wanted.patterns), f"version {version.version}")
            way = check_path(wanted.path) if wanted.path else ()
            with opened_folder(into) as top, made_folder(top, way) as folder:
                self._filesets.put(folder, files)

    def _version(self, wanted: Input) -> FilesetVersion:
        store, at_once = self._dispatcher.store, self._dispatcher.at_once
        fileset, number = wanted.fileset, wanted.version
        if wanted.maker:
            found = at_once(store.versions_of_node(self._holder.id, wanted.maker))
            made = made_by_node(wanted.maker, fileset, found)
            if made is None:
                raise NotFound(f"the job '{wanted.maker}' has made no files")
            fileset, number = made.fileset, made.version
        version = at_once(store.input_version(self._holder, fileset, number))
        if version is None:
            name = fileset if number is None else f"{fileset}@{number}"
            raise NotFound(f"there is no {name}; make it with kit.filesets.push({fileset!r}, …)")
        return version

    async def restore(self, ticket: str, into: Path, on_progress: OnProgress) -> int | None:
        """Puts the files of the job's checkpoint where they lay."""
        saved = self._dispatcher.at_once(self._dispatcher.store.checkpoint(self._holder.id))
        if saved is None:
            return None
        with told("the checkpoint", OF_INPUTS), opened_folder(into) as folder:
            files = self._filesets.manifest(saved.manifest).files
            make_way(folder, files)
            self._filesets.put(folder, files)
        return len(files)

    async def save(
        self, ticket: str, saved: Saving, found_in: Path, on_progress: OnProgress
    ) -> CheckpointView:
        """Keeps files as the checkpoint of the job."""
        with told("the checkpoint", OF_OUTPUTS), opened_folder(found_in) as folder:
            made = self._filesets.stored(self._holder, "", folder, saved.patterns)
        new = NewCheckpoint(made.manifest, made.files, made.total_bytes, saved.sequence)
        check_checkpoint(new)
        kept = self._dispatcher.at_once(self._dispatcher.store.save_checkpoint(self._holder, new))
        if kept is None:
            raise FilesFailed(Outcome.TRANSFER_FAILED, "the checkpoint: the attempt is over")
        return kept.view

    async def take(
        self, ticket: str, made: Output, found_in: Path, on_progress: OnProgress
    ) -> NewVersion:
        """Keeps the files of an output."""
        with (
            told(f"the output {made.fileset}", OF_OUTPUTS),
            opened_output(found_in, made) as folder,
        ):
            return self._filesets.stored(self._holder, made.fileset, folder, made.patterns)
