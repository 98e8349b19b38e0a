"""Shows Longshore at work: `make demo`, or `python examples/demo.py` where longshore is installed.

Starts `longshore up` with two workers on a temporary store, submits some thirty jobs, kills one of
the workers while it runs jobs, cancels a job, asks why another one waits, runs a group of jobs that
depend on each other, and shows how each job ended. Exits with 0 only if each ended as it should.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from longshore import Handle, JobState
from longshore.client.connection import Connection
from longshore.errors import LongshoreError

if TYPE_CHECKING:  # the same module, by its name from the repository's root
    from examples import demo_app
else:
    import demo_app

HERE = Path(__file__).parent
LONGSHORE = (sys.executable, "-m", "longshore")
LONGEST_S = 60.0

out = Console(highlight=False, soft_wrap=True)
Handles = list[Handle[Any]]


class Unexpected(Exception):
    """Something did not go as it should."""


def main() -> int:
    """Runs the demo; answers its exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="longshore-demo-") as folder:
            out.print("[bold]$ longshore up --app demo_app:app --workers 2[/]")
            with longshore_up(Path(folder)) as ready:
                out.print(f"ready: clients {ready['frontend']}, store {ready['store']}\n")
                # Apps and commands find a dispatcher by this variable.
                os.environ["LONGSHORE_CONNECT"] = ready["frontend"]
                asyncio.run(show(ready["frontend"]))
            out.print("stopped in good order")
    except (Unexpected, LongshoreError, TimeoutError) as error:
        out.print(f"not as expected: {str(error) or 'it took too long'}", style="red", markup=False)
        return 1
    return 0


# the processes


@contextmanager
def longshore_up(folder: Path, app: str = "demo_app:app", *more: str) -> Iterator[dict[str, str]]:
    """Runs a dispatcher and two workers on free ports; yields the addresses that they print.

    `--ready-fd` gives one byte as soon as everything is ready, so the demo need not sleep.
    """
    ready, tell_ready = os.pipe()
    options = ["--app", app, "--workers", "2", "--processes", "2", *more]
    options += ["--store", f"sqlite:///{folder}/demo.db", "--set", "lease_s=3"]
    options += ["--backend", "127.0.0.1:0", "--frontend", "127.0.0.1:0"]
    options += [] if "--http" in more else ["--no-http"]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*LONGSHORE, "up", *options, "--json", "--ready-fd", str(tell_ready)],
            cwd=HERE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[tell_ready],
        )
    os.close(tell_ready)
    try:
        if not os.read(ready, 1):
            raise Unexpected((folder / "up.log").read_text())
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONGEST_S)
        os.close(ready)


async def command(*arguments: str) -> None:
    """Runs one `longshore` command, as you would type it."""
    out.print(f"[bold]$ longshore {' '.join(arguments)}[/]")
    process = await asyncio.create_subprocess_exec(*LONGSHORE, *arguments)
    if await process.wait() != 0:
        raise Unexpected(f"longshore {' '.join(arguments)} failed")
    out.print()


# the jobs


async def show(address: str) -> None:
    """Submits jobs, disturbs some, waits for all, and shows how they ended."""
    async with asyncio.timeout(LONGEST_S), demo_app.app, Connection(address) as dispatcher:
        handles = await submit()
        await kill_a_worker(dispatcher, handles)
        handles += [await cancel_one(), await hold_one_back()]
        await watch(handles)
        await run_a_group()
        await command("jobs", "--limit", "5")
        await sum_up(handles)


async def submit() -> Handles:
    """Submits many jobs at once: when this returns, the store has all of them."""
    calls: list[Any] = [demo_app.steady.call(1.5) for _ in range(8)]
    calls += [demo_app.greet.call(name) for name in ("Ada", "Grace", "Edsger", "Barbara")]
    calls += [demo_app.count_primes.call(below) for below in range(100_000, 1_000_000, 100_000)]
    calls += [demo_app.flaky.call(name) for name in ("printer", "mail server", "old database")]
    calls += [demo_app.report.call(20), demo_app.doomed.call("this one always fails")]
    handles = await demo_app.app.submit_many_async(calls)
    out.print(f"submitted {len(handles)} jobs, numbers {handles[0].number}–{handles[-1].number}\n")
    return list(handles)


async def kill_a_worker(dispatcher: Connection, handles: Handles) -> None:
    """Kills a worker while it runs jobs, like a power cut."""
    await running(handles[0])
    victim = (await handles[0].job_async()).worker
    pid = next(view.info.pid for view in await dispatcher.workers() if view.info.id == victim)
    os.kill(pid, signal.SIGKILL)
    out.print(f"killed worker process {pid} (SIGKILL) while it ran job {handles[0].number}:")
    out.print("its jobs run again on another worker, once the dispatcher sees that it ended\n")


async def cancel_one() -> Handle[str]:
    """Cancels a job while it runs."""
    nap = await demo_app.nap.submit_async(600)
    await running(nap)
    await command("cancel", str(nap.number))
    return nap


async def hold_one_back() -> Handle[str]:
    """Pauses a queue, and asks why a job in it does not run."""
    await command("queues", "pause", "nightly")
    waiting = await demo_app.greet.options(queue="nightly").submit_async("Margaret")
    await command("why", str(waiting.number))
    if await waiting.status_async() is not JobState.READY:
        raise Unexpected(f"job {waiting.number} ran although its queue is paused")
    await command("queues", "resume", "nightly")
    return waiting


async def run_a_group() -> None:
    """Submits jobs that depend on each other as one; each starts when its condition holds."""
    async with demo_app.app.group("demo") as group:
        counts = [group.add(demo_app.count_primes.call(below)) for below in (10_000, 20_000)]
        fails = group.add(demo_app.doomed.call("the press is broken"), after=counts, key="press")
        group.add(demo_app.greet.call("Ada"), after=fails, key="sold")
        group.add(demo_app.greet.call("Grace"), after=fails, on="failed", key="sorry")
    state = await group.handle.wait_async()
    for look in ("graph", "show"):
        await command("group", look, str(group.handle.number))
    wanted = ["succeeded", "succeeded", "failed", "dependency_failed", "succeeded"]
    states = [node.state.value for node in await group.handle.jobs_async()]
    if state != "failed" or states != wanted:
        raise Unexpected(f"group {group.handle.number} is {state}, its jobs {', '.join(states)}")


async def running(handle: Handle[Any]) -> None:
    """Returns once a job runs."""
    while True:
        if await handle.status_async() is JobState.RUNNING:
            return
        await asyncio.sleep(0.02)


# showing them


async def watch(handles: Handles) -> None:
    """Shows jobs as they end: a bar on a terminal, a line each in a pipe."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal) as bars:
        ended = bars.add_task("jobs ended", total=len(handles))
        pages = asyncio.create_task(follow(bars, next(h for h in handles if h.kind == "report")))
        async for handle in demo_app.app.as_ended_async(handles):
            bars.advance(ended)
            if not out.is_terminal:
                out.print(f"job {handle.number} {handle.kind}: {(await handle.wait_async()).value}")
        await pages
    out.print()


async def follow(bars: Progress, handle: Handle[Any]) -> None:
    """Shows the progress that one job reports."""
    bar: TaskID = bars.add_task(f"job {handle.number}, {handle.kind}", total=None)
    while True:
        job = await handle.job_async()
        if job.progress is not None:
            bars.update(bar, completed=job.progress.done, total=job.progress.total)
        if job.ended_at is not None:
            return
        await asyncio.sleep(0.05)


async def sum_up(handles: Handles) -> None:
    """Prints a line for each kind, and checks that each job ended as it should."""
    jobs = [await handle.job_async() for handle in handles]
    table = Table("kind", "states", "most attempts", "for example")
    for kind in dict.fromkeys(job.kind for job in jobs):
        mine = [job for job in jobs if job.kind == kind]
        states = Counter(job.state.value for job in mine)
        told = ", ".join(f"{count} {state}" for state, count in states.items())
        example = next(handle for handle in reversed(handles) if handle.kind == kind)
        table.add_row(kind, told, str(max(job.attempt for job in mine)), await outcome(example))
    out.print(table)
    expected = {"doomed": JobState.FAILED, "nap": JobState.CANCELLED}
    for job in jobs:
        if job.state is not expected.get(job.kind, JobState.SUCCEEDED):
            raise Unexpected(f"job {job.number} ({job.kind}) is {job.state.value}")


async def outcome(handle: Handle[Any]) -> str:
    """What a job returned, or how it failed."""
    job = await handle.job_async()
    if job.error is not None:
        return f"{job.error.type}: {job.error.message}"
    return repr(await handle.result_async()) if job.state is JobState.SUCCEEDED else "–"


if __name__ == "__main__":
    sys.exit(main())
