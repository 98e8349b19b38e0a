"""What a gateway does for its files beside requests: it proves whose they are, and removes some."""

from __future__ import annotations

import asyncio
import logging
from typing import Final
from uuid import uuid4

from longshore.client.file_requests import FileRequests
from longshore.errors import LongshoreError
from longshore.gateway.file_keeping import FileKeeping

log = logging.getLogger("longshore.gateway")

RETRY_S: Final = 1.0
LOOK_S: Final = 60.0
"""How often a gateway asks which blobs can go."""


async def keep_up(keeping: FileKeeping, requests: FileRequests) -> None:
    """Binds the place of the files to the store, and then removes what is doomed, for ever."""
    is_bound = False
    while True:
        is_bound = is_bound or await _bound(keeping, requests)
        if is_bound:
            await _clean(keeping, requests)
        await asyncio.sleep(LOOK_S if is_bound else RETRY_S)


async def _bound(keeping: FileKeeping, requests: FileRequests) -> bool:
    """Whether it is known if these files are the store's. A gateway serves no others."""
    try:
        own = await keeping.in_thread(keeping.blobs.place.id, str(uuid4()))
        known = await requests.bind_folder(own)
    except LongshoreError as error:
        keeping.why_not = f"the gateway cannot prove whose its files are yet: {error}"
        return False
    if own == known:
        keeping.why_not = ""
        return True
    if not keeping.why_not.startswith("another"):
        log.error("the files of the store are in another place; this gateway serves none")
    keeping.why_not = (
        f"another place has the files of this store ({known}, not {own}); set `files` of this "
        "gateway to it, or ask the other gateway"
    )
    return False


async def _clean(keeping: FileKeeping, requests: FileRequests) -> None:
    try:
        while count := await keeping.remove_doomed(requests):
            log.info("removed %d blobs that nothing needs", count)
        idle_s = keeping.settings.upload_idle_s
        await keeping.in_thread(keeping.blobs.drop_uploads, idle_s)
    except LongshoreError as error:
        log.warning("files that nothing needs were not removed: %s", error)
