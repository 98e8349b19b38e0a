"""Removes containers that nobody attends: those of a dead worker, and those an engine kept."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Set

import aiodocker
from aiodocker.exceptions import DockerError

from longshore.executors.host.programs.container_config import PROCESS, TOKEN

_log = logging.getLogger(__name__)

HasEnded = Callable[[str], bool]
"""Whether the process of a mark has ended; False if in doubt."""


async def sweep(
    docker: aiodocker.Docker, own: str, attended: Set[int], has_ended: HasEnded
) -> list[str]:
    """Removes all containers that are abandoned; answers their names.

    `own` is the mark of this process, which attends to the tokens in `attended`.
    """
    removed = []
    filters = json.dumps({"label": [PROCESS]})
    for container in await docker.containers.list(all=True, filters=filters):
        labels: Mapping[str, str] = container["Labels"]
        if not is_abandoned(labels, own, attended, has_ended):
            continue
        with contextlib.suppress(DockerError):  # another worker may be removing it
            await container.delete(force=True, v=True)
            removed.append(container["Names"][0].removeprefix("/"))
    if removed:
        _log.warning("removed %d containers that nobody attended", len(removed))
    return removed


def is_abandoned(
    labels: Mapping[str, str], own: str, attended: Set[int], has_ended: HasEnded
) -> bool:
    """Whether nobody waits for the end of the container with these labels."""
    process, token = labels.get(PROCESS, ""), labels.get(TOKEN, "")
    if own and process == own:
        return not (token.isdecimal() and int(token) in attended)
    return has_ended(process)
