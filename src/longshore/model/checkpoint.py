"""Checkpoints: the files that one attempt at a program saves for the next.

A job has at most one, the last that was saved in its round. It is gone when the job has ended.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class NewCheckpoint(Struct, frozen=True, omit_defaults=True):
    """A checkpoint that an attempt saves. `manifest` is sealed by the attempt."""

    manifest: bytes
    files: int
    total_bytes: int
    sequence: int = 1
    """Which checkpoint of this attempt it is. A repeat, or one that comes late, changes nothing."""


class CheckpointView(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A checkpoint as a job shows it."""

    files: int
    total_bytes: int
    saved_at: datetime
    number: int = 1
    """How many times the files were other ones than before, in this round."""
    idle: int = 0
    """How many attempts in a row saved the files that they had begun with."""


class Checkpoint(CheckpointView, frozen=True, omit_defaults=True, kw_only=True):
    """What the next attempt begins with."""

    manifest: bytes

    @property
    def view(self) -> CheckpointView:
        """Without what only the next attempt needs."""
        return CheckpointView(
            files=self.files,
            total_bytes=self.total_bytes,
            saved_at=self.saved_at,
            number=self.number,
            idle=self.idle,
        )
