"""The part of `MemoryStore` that knows checkpoints."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from longshore.core.checkpoints import is_news, next_checkpoint
from longshore.core.lifecycle import TERMINAL
from longshore.model.checkpoint import Checkpoint, NewCheckpoint
from longshore.model.fileset import FilesetVersion, Holder
from longshore.model.job import Job
from longshore.payload.references import BESIDE
from longshore.testing.memory_file_rows import CheckpointRow
from longshore.testing.memory_files import MemoryFiles


class MemoryCheckpoints(MemoryFiles):
    """The verbs about checkpoints, and about what a job of the same group has made."""

    async def save_checkpoint(self, holder: Holder, made: NewCheckpoint) -> Checkpoint | None:
        round, files = self._round(holder), self._files
        listing = files.manifests.get(made.manifest)
        if not round or listing is None or not listing.pins.get(holder):
            return None
        row = files.checkpoints.get(holder.id)
        if row is not None and row.round != round:
            row = None
        is_same = row is not None and row.token == holder.token
        if row is not None and is_same and not is_news(row.sequence, made):
            return row.kept
        known = None if row is None else row.kept
        kept = next_checkpoint(known, made, self._utc(), by_same_attempt=is_same)
        files.checkpoints[holder.id] = CheckpointRow(round, holder.token, made.sequence, kept)
        return kept

    async def checkpoint(self, job: UUID) -> Checkpoint | None:
        row = self._files.checkpoints.get(job)
        return row.kept if row is not None and self._is_of_live(job, row) else None

    async def job(self, ref: UUID | int) -> Job | None:
        found = await super().job(ref)
        saved = None if found is None else await self.checkpoint(found.id)
        return found if found is None or saved is None else replace(found, checkpoint=saved.view)

    def _is_of_live(self, id: UUID, row: CheckpointRow) -> bool:
        job = self._jobs.get(id)
        return job is not None and job.job.round == row.round and job.state not in TERMINAL

    async def forget_manifests(self, older_than_s: float, most: int = 1000) -> int:
        known = self._files.checkpoints
        dead = [job for job, row in known.items() if not self._is_of_live(job, row)][:most]
        for job in dead:
            del known[job]
        return len(dead) + await super().forget_manifests(older_than_s, most)

    async def versions_of_node(self, job: UUID, key: str) -> list[FilesetVersion]:
        row = self._jobs.get(job)
        if row is None or row.node is None:
            return []
        if key.startswith(BESIDE):
            key = row.node.key[: row.node.key.rfind("/") + 1] + key.removeprefix(BESIDE)
        rows = self._jobs.values()
        nodes = [(one, one.node) for one in rows if one.node is not None]
        of = row.node.group, key
        maker = next((one for one, node in nodes if (node.group, node.key) == of), None)
        while maker is not None:
            made = self._files.versions.values()
            own = [one for one in made if (one.job, one.round) == (maker.job.id, maker.job.round)]
            if own:
                return sorted(own, key=lambda one: one.fileset)
            earlier = None if maker.node is None else maker.node.taken_from
            maker = next((one for one in rows if one.job.number == earlier), None)
        return []
