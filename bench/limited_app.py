"""Coroutines that do nothing: without a limit, all with one key, and each with one of many keys."""

import longshore
from longshore import Limit

NEVER_FULL = 1_000_000

app = longshore.App("bench-limited")


@app.job
async def noop(data: str) -> None:
    """Does nothing."""


@app.job(limit=Limit(NEVER_FULL, key="bench=all"))
async def noop_one_key(data: str) -> None:
    """Does nothing, and counts for the key of all."""


@app.job(limit=Limit(NEVER_FULL, key="tenant"))
async def noop_many_keys(data: str, tenant: int) -> None:
    """Does nothing, and counts for the key of its tenant."""


@app.job(limit=Limit(1, key="tenant"))
async def noop_in_turn(data: str, tenant: int) -> None:
    """Does nothing, alone of its tenant's."""
