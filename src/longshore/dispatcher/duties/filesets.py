"""Filesets: removes old versions, and dooms blobs that nothing has needed for long.

A gateway removes their bytes later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from longshore.config import DispatcherSettings
from longshore.core.version_retention import Known, old_versions
from longshore.ports import Store

log = logging.getLogger("longshore.dispatcher")

PAUSE_S: Final = 0.05
STEP: Final = 200
"""So many manifests, or blobs, are looked at before a pause."""


async def collect_files(
    store: Store, settings: DispatcherSettings, utc: Callable[[], datetime]
) -> None:
    """Removes old versions, then pins, manifests and blobs that nothing needs, in small steps."""
    if settings.versions_keep:
        await remove_old_versions(store, settings.versions_keep, settings.versions_older_s, utc)
    age_s, forgotten = settings.blob_unused_s, 1
    while forgotten:
        forgotten = await store.forget_manifests(age_s, STEP)
        await asyncio.sleep(PAUSE_S)
    doomed = 1
    while doomed:
        doomed = len(await store.doom_blobs(age_s, STEP))
        await asyncio.sleep(PAUSE_S)


async def remove_old_versions(
    store: Store, keep: int, older_s: float, utc: Callable[[], datetime]
) -> int:
    """Removes the old versions of all filesets that no live job or group may need; how many."""
    after, removed = "", 0
    while page := await store.filesets(after, STEP):
        after = page[-1].latest.fileset
        for fileset in (one.latest.fileset for one in page if one.versions > keep):
            removed += await _remove_old(store, fileset, keep, older_s, utc())
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(PAUSE_S)
    return removed


async def _remove_old(store: Store, fileset: str, keep: int, older_s: float, now: datetime) -> int:
    before: int | None = None
    known: list[Known] = []
    while page := await store.fileset_versions(fileset, before, STEP):
        before = page[-1].version
        for one in page:
            known.append(Known(one.version, one.partial, (now - one.created_at).total_seconds()))
    old, removed = old_versions(known, keep, older_s), 0
    for start in range(0, len(old), STEP):
        removed += len(await store.remove_versions(fileset, old[start : start + STEP]))
    if removed:
        log.info("fileset %s: removed %d old versions", fileset, removed)
    return removed
