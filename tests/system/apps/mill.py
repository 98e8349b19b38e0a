"""Jobs that share runs. Files are how the tests and the runs meet."""

# ruff: noqa: ASYNC110, ASYNC230, ASYNC240

from __future__ import annotations

import asyncio
from pathlib import Path

import longshore
from longshore import Batch, Context

app = longshore.App("mill")


@app.job(batch=Batch(10, wait_s=0.2, key="folder"))
async def grind(ctx: list[Context], sacks: list[int], folder: str) -> list[str]:
    """Notes what it takes, and ends once a file appears."""
    with Path(folder, "ran").open("a") as file:
        file.write(" ".join(map(str, sacks)) + "\n")
    while not Path(folder, "until").exists():
        await asyncio.sleep(0.01)
    return [f"{sack} at attempt {one.attempt}" for sack, one in zip(sacks, ctx, strict=True)]


@app.job(batch=Batch(50, wait_s=60))
async def patient(sacks: list[int]) -> list[int]:
    """Waits for others for longer than any test."""
    return [len(sacks)] * len(sacks)
