"""Which checkpoint a job has after an attempt saved one, and what asking to go on later costs.

A program that exits with 85 goes on later, at no cost, as often as it likes: but only while it gets
on. An attempt that saves the files it began with is idle. The pause grows with every idle attempt
in a row, and after `MAX_IDLE` of them each counts as a failure.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from longshore.errors import InvalidInput
from longshore.model.checkpoint import Checkpoint, CheckpointView, NewCheckpoint
from longshore.model.fileset import HASH_BYTES

MAX_IDLE: Final = 10
"""How many attempts in a row may save nothing new, at no cost."""
MAX_PATTERNS: Final = 100
MAX_SEQUENCE: Final = 2**53
PAUSE_S: Final = 1.0
"""Before a program that asked to go on later does. One that asks again and again would otherwise
fill its history a hundred times a second."""
MAX_PAUSE_S: Final = 300.0


def is_news(known_sequence: int, made: NewCheckpoint) -> bool:
    """Whether an attempt that has saved so many checkpoints saves another with this one."""
    return made.sequence > known_sequence


def next_checkpoint(
    known: Checkpoint | None, made: NewCheckpoint, at: datetime, *, by_same_attempt: bool
) -> Checkpoint:
    """The checkpoint of a job that had this one in its round, once another is saved."""
    number, idle = 1, 0
    if known is not None and known.manifest == made.manifest:
        number, idle = known.number, known.idle + (not by_same_attempt)
    elif known is not None:
        number = known.number + 1
    return Checkpoint(
        manifest=made.manifest,
        files=made.files,
        total_bytes=made.total_bytes,
        saved_at=at,
        number=number,
        idle=idle,
    )


def pause_s(idle: int) -> float:
    """How long a program waits that asked to go on later, after so many idle attempts in a row."""
    return min(PAUSE_S * 2.0 ** min(max(idle, 0), 16), MAX_PAUSE_S)


def idle_words(saved: CheckpointView) -> str:
    """Why a program that asks to go on later has failed after all."""
    return (
        f"it asked to go on later {saved.idle:,} times in a row with the same files in its "
        "checkpoint, so it does not get on"
    )


def check_checkpoint(made: NewCheckpoint) -> None:
    """Raises `InvalidInput` if a checkpoint cannot be."""
    if len(made.manifest) != HASH_BYTES:
        raise InvalidInput(f"the manifest of a checkpoint is named by {HASH_BYTES} bytes")
    for name in ("files", "total_bytes", "sequence"):
        if not 0 <= getattr(made, name) <= MAX_SEQUENCE:
            raise InvalidInput(f"the {name} of a checkpoint are more than can be")
