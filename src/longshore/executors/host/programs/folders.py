"""The folders of one attempt at a program. All of them go when it has ended.

    SCRATCH/JOB-TOKEN/
        work/       the program's own folder
        report/     the files by which it tells its result and its progress
        secrets/    the secrets that it asked for, if any

To make and remove folders takes as long as to start a command, and sometimes much longer: others
write to the disk too. So the report files of a command are in the folder that is there anyway, and
if it has left nothing at all, the next command gets its folders. Those are called `spare-…`.
"""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from longshore.executors import scratch
from longshore.executors.host.programs.report_files import PROGRESS, RESULT
from longshore.executors.host.programs.runner import CannotBegin
from longshore.model.attempt import Assignment
from longshore.model.program import (
    DEVICE_PREFIX,
    GPU,
    GPU_VARIABLE,
    JOB_VARIABLE,
    AnyProgram,
    Command,
    Outcome,
    ProgramEnd,
)

MOST_SPARE: Final = 64
_MODE: Final = 0o700
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


class Folders(Struct, frozen=True):
    """Where one attempt is at home."""

    whole: Path
    work: Path
    report: Path
    secrets: Path | None = None
    is_spare: bool = False
    """Whether another command can have them, if nothing is left in them."""
    result: str = ""
    progress: str = ""
    """The files by which a program reports. Made once: a spare folder serves many commands."""

    def __post_init__(self) -> None:
        force_setattr(self, "result", os.path.join(self.report, RESULT))
        force_setattr(self, "progress", os.path.join(self.report, PROGRESS))


class FolderKeeper:
    """Gives folders to attempts, and takes them away. It keeps up to `most_spare` for others."""

    def __init__(self, most_spare: int = MOST_SPARE) -> None:
        self._most_spare = most_spare
        self._spare: list[Folders] = []
        self._numbers = count(1)

    def make(self, assignment: Assignment, program: AnyProgram, kept_in: str) -> Folders:
        """The folders of an attempt, with its secrets, which lie in `kept_in`.

        Raises `CannotBegin` if it cannot have these.
        """
        if isinstance(program, Command) and not program.secrets:
            return self._spare.pop() if self._spare else self._made_spare()
        whole = scratch.make(assignment.job, assignment.token)
        own = whole / "secrets" if program.secrets else None
        report = whole if isinstance(program, Command) else whole / "report"
        try:
            for folder in {whole / "work", report, own} - {whole, None}:
                os.mkdir(str(folder), _MODE)
            for name in program.secrets:
                _give(name, kept_in, whole / "secrets")
        except BaseException:
            scratch.remove(whole)
            raise
        return Folders(whole, whole / "work", report, own)

    def _made_spare(self) -> Folders:
        whole = scratch.make_spare(os.getpid(), next(self._numbers))
        os.mkdir(whole / "work", _MODE)
        return Folders(whole, whole / "work", whole, is_spare=True)

    async def remove(self, folders: Folders) -> None:
        """Removes folders with everything in them, or keeps them for the next command."""
        is_room = folders.is_spare and len(self._spare) < self._most_spare
        if is_room and _is_untouched(folders):
            self._spare.append(folders)
        else:
            await asyncio.to_thread(scratch.remove, folders.whole)

    def close(self) -> None:
        """Removes the folders that nobody has."""
        for folders in self._spare:
            scratch.remove(folders.whole)


def _is_untouched(folders: Folders) -> bool:
    """Whether folders are as they were made. Only looks: that never waits for a disk's journal."""
    try:
        is_clean = os.listdir(folders.whole) == ["work"] and not os.listdir(folders.work)
        return is_clean and {_mode(folders.whole), _mode(folders.work)} == {_MODE}
    except OSError:
        return False


def _mode(path: Path) -> int:
    return os.stat(path, follow_symlinks=False).st_mode & 0o7777


def _give(name: str, kept_in: str, into: Path) -> None:
    """Copies a secret. Its words name the secret, never what it is."""
    if not kept_in:
        raise _no_secret(name, "this worker has none: set secrets_folder to a folder of files")
    if not _SECRET_NAME.fullmatch(name):
        raise _no_secret(name, "names of secrets have letters, digits and _ . - only")
    try:
        value = (Path(kept_in) / name).read_bytes()
    except OSError as error:
        raise _no_secret(name, f"{kept_in} has no such file ({error.strerror})") from None
    descriptor = os.open(into / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "wb") as file:
        file.write(value)


def _no_secret(name: str, why: str) -> CannotBegin:
    return CannotBegin(
        ProgramEnd(Outcome.NOT_STARTED, None, f"it needs the secret '{name:.200}', and {why}")
    )


def variables(assignment: Assignment, folders: Folders) -> dict[str, str]:
    """What a program finds in its environment about its attempt."""
    told = {
        JOB_VARIABLE: str(assignment.job),
        "LONGSHORE_TOKEN": str(assignment.token),
        "LONGSHORE_ATTEMPT": str(assignment.attempt),
        "LONGSHORE_RESULT": folders.result,
        "LONGSHORE_PROGRESS": folders.progress,
    }
    if folders.secrets is not None:
        told["LONGSHORE_SECRETS"] = str(folders.secrets)
    for one in assignment.devices:
        told[_device_variable(one.name)] = said = ",".join(map(str, one.numbers))
        if one.name == GPU:
            told[GPU_VARIABLE] = said
    if (scheduled := assignment.scheduled) is not None:
        told["LONGSHORE_SCHEDULE"] = scheduled.schedule
        told["LONGSHORE_NOMINAL_AT"] = _time_text(scheduled.nominal_at)
        if scheduled.last_success_at is not None:
            told["LONGSHORE_LAST_SUCCESS_AT"] = _time_text(scheduled.last_success_at)
    return told


def _device_variable(name: str) -> str:
    return DEVICE_PREFIX + name.upper().replace("-", "_")


def _time_text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
