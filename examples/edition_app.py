"""The jobs of a small newspaper. `edition.yaml` beside it says which depends on which.

Run it from this folder:

    longshore up --app edition_app:app
    longshore run edition.yaml -p day=2026-11-16 --wait
"""

from __future__ import annotations

import asyncio

from longshore import App

app = App("edition")


@app.job
async def fetch(desk: str, day: str) -> str:
    """Collects what a desk wrote."""
    await asyncio.sleep(0.2)
    return f"{desk}, {day}"


@app.job(retries=2, backoff_s=0.2)
async def lay_out(pages: int) -> int:
    """Makes pages of it."""
    await asyncio.sleep(0.3)
    return pages


@app.job
async def press(copies: int) -> int:
    """Prints it."""
    await asyncio.sleep(0.3)
    return copies


@app.job
async def districts() -> list[str]:
    """Finds out who wants the paper."""
    return ["north", "harbour", "south", "old town"]


@app.job
async def deliver(district: str, copies: int) -> str:
    """Brings the paper to one district."""
    await asyncio.sleep(0.2)
    return f"{copies} copies for {district}"


@app.job
async def tell(text: str) -> str:
    """Tells the office."""
    return text
