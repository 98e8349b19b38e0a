"""Filesets: dooms blobs that nothing has needed for long. A gateway removes their bytes later."""

from __future__ import annotations

import asyncio
from typing import Final

from longshore.config import DispatcherSettings
from longshore.ports import Store

PAUSE_S: Final = 0.05
STEP: Final = 200
"""So many manifests, or blobs, are looked at before a pause."""


async def collect_files(store: Store, settings: DispatcherSettings) -> None:
    """Forgets pins, manifests and blobs that nothing needs, in small steps."""
    age_s, forgotten = settings.blob_unused_s, 1
    while forgotten:
        forgotten = await store.forget_manifests(age_s, STEP)
        await asyncio.sleep(PAUSE_S)
    doomed = 1
    while doomed:
        doomed = len(await store.doom_blobs(age_s, STEP))
        await asyncio.sleep(PAUSE_S)
