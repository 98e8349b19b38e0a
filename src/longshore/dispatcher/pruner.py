"""The pruner: removes old jobs, groups, workers and entries of the audit in the background.

It walks along the jobs in small steps, with a pause after each. Now and then it starts at the first
job again, to find jobs that had not ended when it passed them. It may lose its place, and several
dispatchers may prune at once: nothing is removed twice.
"""

from __future__ import annotations

import asyncio
from typing import Final

from longshore.config import DispatcherSettings
from longshore.core.lifecycle import TERMINAL
from longshore.core.retention import only, retention
from longshore.model.job import JobState
from longshore.model.retention import Retention
from longshore.ports import Store

PAUSE_S: Final = 0.05
FROM_START_EVERY: Final = 60
WORKERS_PER_STEP: Final = 1000

_GOOD_ENDS: Final = frozenset({JobState.SUCCEEDED})


def configured(settings: DispatcherSettings) -> Retention:
    """How long to keep jobs, by these settings."""
    return retention(settings.keep_succeeded_s, settings.keep_failed_s, settings.keep_most)


class Pruner:
    """Walks along the jobs of a store: one walk for successes, one for all other ends."""

    def __init__(self, store: Store, settings: DispatcherSettings) -> None:
        kept = configured(settings)
        self._store = store
        self._kept = kept
        self._keep_workers_s = settings.keep_workers_s
        self._keep_audit_s = settings.keep_audit_s
        self._walks = [
            _Walk(store, part)
            for part in (only(kept, _GOOD_ENDS), only(kept, TERMINAL - _GOOD_ENDS))
            if part.states
        ]

    async def prune(self) -> None:
        """Removes all that is past its bounds."""
        for walk in self._walks:
            await walk.go()
        await self._prune_groups()
        if self._keep_workers_s > 0:
            await self._forget_workers()
        if self._keep_audit_s > 0:
            await self._forget_audit()

    async def _prune_groups(self) -> None:
        """Also finishes what a dispatcher began that died."""
        done = False
        while not done:
            done = (await self._store.prune_groups(self._kept)).done
            await asyncio.sleep(PAUSE_S)

    async def _forget_workers(self) -> None:
        count = WORKERS_PER_STEP
        while count == WORKERS_PER_STEP:
            count = await self._store.forget_workers(self._keep_workers_s, most=WORKERS_PER_STEP)
            await asyncio.sleep(PAUSE_S)

    async def _forget_audit(self) -> None:
        count = WORKERS_PER_STEP
        while count >= WORKERS_PER_STEP:
            count = await self._store.forget_audit(self._keep_audit_s, most=WORKERS_PER_STEP)
            await asyncio.sleep(PAUSE_S)


class _Walk:
    """One walk along the jobs, and how far it came."""

    def __init__(self, store: Store, kept: Retention) -> None:
        self._store = store
        self._kept = kept
        self._turns = 0
        self._up_to = 0

    async def go(self) -> None:
        """Walks on until no later job is to be removed."""
        if self._turns % FROM_START_EVERY == 0:
            self._up_to = 0
        self._turns += 1
        done = False
        while not done:
            step = await self._store.prune(self._kept, after=self._up_to)
            self._up_to, done = step.up_to, step.done
            await asyncio.sleep(PAUSE_S)
