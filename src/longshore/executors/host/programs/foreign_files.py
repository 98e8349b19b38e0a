"""Files that a container made in the folders of its attempt, as a user who is not the worker's.

Whoever the program runs as may write there: the folders are open to all, and lie in one that only
the worker can enter. For the same reason anybody may read the copies of its secrets. What another
user left there, a worker that is not root cannot remove. So the engine, which is root, is asked to
give the folders back, before the container is removed: it unpacks an archive that holds nothing but
these folders, with the worker as owner.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
import tarfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from aiodocker.containers import DockerContainer

_OPEN: Final = 0o777
_READABLE: Final = 0o755
_READABLE_FILE: Final = 0o444
_DEEPEST: Final = 64
_MOST_FOLDERS: Final = 100_000


def open_up(*folders: Path) -> None:
    """Lets whoever the program runs as write into these folders."""
    for folder in folders:
        folder.chmod(_OPEN)


def let_read(secrets: Path) -> None:
    """Lets whoever the program runs as read these files."""
    secrets.chmod(_READABLE)
    for file in secrets.iterdir():
        file.chmod(_READABLE_FILE)


async def give_back(container: DockerContainer, inside: dict[Path, str]) -> None:
    """Makes the worker the owner of all folders in these, whose paths in the container are given.

    A folder that only its owner can read shows its own folders once it is given back: so it takes
    as many rounds as they are deep. Root needs none of this.
    """
    if os.geteuid() == 0:
        return
    given: set[Path] = set()
    for _ in range(_DEEPEST):
        new: set[Path] = set()
        for folder, path in inside.items():
            foreign = await asyncio.to_thread(_foreign, folder) - given
            if foreign:
                put: Callable[..., Awaitable[object]] = container.put_archive
                await put(path, _archive(folder, foreign))
                new |= foreign
        if not new:
            return
        given |= new


def _foreign(top: Path) -> set[Path]:
    """The folders below one that others own, as far as they can be seen."""
    found: set[Path] = set()
    for count, (here, folders, _) in enumerate(os.walk(top)):
        if count > _MOST_FOLDERS:
            break
        for name in folders:
            path = Path(here, name)
            facts = path.lstat()
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid != os.geteuid():
                found.add(path)
    return found


def _archive(top: Path, folders: Iterable[Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in sorted(folders):
            entry = tarfile.TarInfo(str(folder.relative_to(top)))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o700
            entry.uid, entry.gid = os.geteuid(), os.getegid()
            tar.addfile(entry)
    return packed.getvalue()
