"""What a gateway does for its files beside requests.

It proves whose they are, removes those that nothing needs, and archives old logs.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final
from uuid import uuid4

from longshore.client.connection import Connection
from longshore.client.file_requests import FileRequests
from longshore.errors import LongshoreError
from longshore.gateway.file_keeping import FileKeeping
from longshore.gateway.log_archiving import LogArchiver

log = logging.getLogger("longshore.gateway")

RETRY_S: Final = 1.0


async def keep_up(keeping: FileKeeping, connection: Connection) -> None:
    """Binds the place of the files to the store, and then looks after them, for ever."""
    requests, archiver = connection.files, LogArchiver(keeping, connection)
    is_bound, archive_at = False, 0.0
    while True:
        is_bound = is_bound or await _bound(keeping, requests)
        if is_bound:
            await _clean(keeping, requests)
            if monotonic() >= archive_at:
                archive_at = monotonic() + await _archive(archiver)
        await asyncio.sleep(keeping.settings.files_look_s if is_bound else RETRY_S)


async def _archive(archiver: LogArchiver) -> float:
    """Archives old logs; answers after how long to look again."""
    try:
        return await archiver.archive_all()
    except LongshoreError as error:
        log.warning("old logs were not archived: %s", error)
        return 0.0


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
