"""Jobs that use their scratch folder, and end in every way."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import longshore

app = longshore.App("scratch")


@app.job
async def keep_async(how: str, ctx: longshore.Context) -> str:
    (ctx.scratch / "file").write_text("x")
    if how == "raise":
        raise ValueError(str(ctx.scratch))
    if how == "wait":
        ctx.step(str(ctx.scratch))
        await asyncio.sleep(1000)
    if how == "die":
        os._exit(1)
    if how == "no threads":
        await asyncio.get_running_loop().shutdown_default_executor()
    return str(ctx.scratch)


@app.job
def keep(how: str, ctx: longshore.Context) -> str:
    (ctx.scratch / "file").write_text("x")
    if how == "raise":
        raise ValueError(str(ctx.scratch))
    if how == "wait":
        ctx.step(str(ctx.scratch))
        time.sleep(1000)
    if how == "die":
        os._exit(1)
    if how == "deep":
        dig(ctx.scratch, 1100)
    return str(ctx.scratch)


@app.job(isolation="thread")
def keep_in_thread(how: str, ctx: longshore.Context) -> str:
    return keep(how, ctx)


def dig(folder: Path, depth: int) -> None:
    """Makes a folder in a folder in a folder."""
    os.chdir(folder)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    os.chdir("/")


@app.job
async def leave_alone() -> None: ...
