"""The jobs of the demo. An app is a module with an `App`; `@app.job` makes its functions jobs.

Run it by hand from this folder:

    longshore up --app demo_app:app
    longshore submit greet name=Ada --wait
"""

from __future__ import annotations

import asyncio
import time

from longshore import App, current

app = App("demo")


@app.job
async def greet(name: str) -> str:
    """An `async def` job: one process runs a hundred of these at once."""
    await asyncio.sleep(0.05)
    return f"hello, {name}"


@app.job
def count_primes(below: int) -> int:
    """A plain `def` job has a process to itself, so it may use all CPU, block, even crash."""
    sieve = bytearray([1]) * below
    sieve[:2] = bytes(2)
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    return sum(sieve)


@app.job(retries=3, backoff_s=0.2)
async def flaky(name: str) -> str:
    """Fails twice, then succeeds: the decorator declares its retries and the first pause."""
    attempt = current().attempt
    if attempt < 3:
        raise ConnectionError(f"{name} did not answer attempt {attempt}")
    return f"{name} answered attempt {attempt}"


@app.job
def report(pages: int) -> str:
    """Reports what it does and how far it is while it runs."""
    job = current()
    job.step("writing")
    for page in range(pages):
        job.progress(page, pages, "pages")
        time.sleep(0.1)
    job.progress(pages, pages, "pages")
    return f"{pages} pages"


@app.job
async def steady(seconds: float) -> str:
    """Runs long enough for the demo to kill its worker."""
    await asyncio.sleep(seconds)
    return f"done, on attempt {current().attempt}"


@app.job
async def nap(seconds: float) -> str:
    """Sleeps for long; a cancel ends it at any moment."""
    await asyncio.sleep(seconds)
    return "slept well"


@app.job
async def doomed(reason: str) -> None:
    """Never succeeds; the error, with its traceback, stays with the job."""
    raise ValueError(reason)
