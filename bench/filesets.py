"""Filesets: one brought to a worker of this machine, beside `cp -r`; many small files pushed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from msgspec import Struct

from bench.fleet import ANY
from bench.pairs import Ratio, interleave
from bench.stage import Stage
from longshore.files.beneath import opened_folder
from longshore.files.cache import BlobCache
from longshore.files.collect import Bounds
from longshore.files.pulling import Pulling
from longshore.files.transfer import FileClient
from longshore.testing.processes import Process, command, settings

FILES = 1_000
SMALL_BYTES = 100
SLOTS = 8
BOUNDS = Bounds(1 << 40, 1_000_000)


class Filesets(Struct, frozen=True):
    """What was measured, with one gateway and PostgreSQL."""

    total_bytes: int
    pulled: Ratio
    """Bytes a second into a worker's folder, of those that `cp -r` copies."""
    small_files: int
    small_per_s: float
    peak_mb: float
    """The most memory of the command that pushed all small files."""
    tenth_peak_mb: float
    """The same for a tenth of them."""


def measure(stage: Stage) -> Filesets:
    """A large fileset is pulled and copied in turn; then small files are pushed."""
    folder = stage.folder / "filesets"
    total, small = stage.sizes.fileset_bytes, stage.sizes.small_files
    with stage.fresh() as url, _up(stage, url, folder / "files") as up:
        _fill(folder / "data", FILES, os.urandom(total // FILES))
        _push(up, "data", folder / "data")
        numbers = count()
        pulled = interleave(
            stage.sizes.pairs,
            lambda: total / _pull_s(up, folder, next(numbers)),
            lambda: total / _copy_s(folder, next(numbers)),
        )
        stage.say(f"{pulled.one / 1e6:,.0f} MB/s pulled, {pulled.median:.2f} of cp -r")
        tenth_mb = _small(up, folder / "few", small // 10)[1]
        took_s, peak_mb = _small(up, folder / "many", small)
    shutil.rmtree(folder)
    stage.say(f"{small / took_s:,.0f} small files a second pushed, with {peak_mb:.0f} MB at most")
    return Filesets(total, pulled, small, small / took_s, peak_mb, tenth_mb)


@contextmanager
def _up(stage: Stage, url: str, files: Path) -> Iterator[str]:
    """Where a gateway with files answers."""
    words = ["--store", url, "--backend", ANY, "--frontend", ANY, "--http", ANY]
    own = settings(files=files, max_fileset_files=1_000_000)
    with Process("up", *words, *own, log=stage.folder / "filesets.log") as process:
        yield process.ready().facts["http"]


def _fill(folder: Path, files: int, data: bytes) -> None:
    """Files that all differ, a thousand in each folder."""
    for number in range(files):
        inside = folder / str(number // 1_000)
        inside.mkdir(parents=True, exist_ok=True)
        (inside / str(number)).write_bytes(b"%d " % number + data)


def _push(up: str, name: str, folder: Path) -> tuple[float, float]:
    """How long a push takes, and how many MB of memory it has at most."""
    words = command("filesets", "push", name, str(folder), "--connect", up)
    more = settings(max_fileset_files=1_000_000)
    began = time.perf_counter()
    pushing = subprocess.Popen([*words, *more], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(pushing.pid, 0)
    pushing.returncode = os.waitstatus_to_exitcode(status)
    if pushing.returncode:
        raise RuntimeError(f"a push of {folder} ended with code {pushing.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def _small(up: str, folder: Path, files: int) -> tuple[float, float]:
    _fill(folder, files, os.urandom(SMALL_BYTES))
    return _push(up, folder.name, folder)


def _pull_s(up: str, folder: Path, number: int) -> float:
    """How long the files take to a worker that nobody pulled them to before."""
    into, cache = folder / f"pulled-{number}", folder / f"cache-{number}"
    into.mkdir()
    os.sync()
    began = time.perf_counter()
    asyncio.run(_pull(up, folder / "files", cache, into))
    took_s = time.perf_counter() - began
    shutil.rmtree(into)
    shutil.rmtree(cache)
    return took_s


async def _pull(up: str, near: Path, cache: Path, into: Path) -> None:
    """What the host of a worker of `longshore up` does for an input."""
    async with FileClient([up]) as client:
        version = (await client.version("data", limit=1)).version
        pulling = Pulling(client, BlobCache(cache, 1 << 40), SLOTS, near)
        manifest = await pulling.manifest(bytes.fromhex(version.manifest), BOUNDS)
        with opened_folder(into) as opened:
            await pulling.put(opened, manifest.files, lambda done, total: None)


def _copy_s(folder: Path, number: int) -> float:
    into = folder / f"copied-{number}"
    os.sync()
    began = time.perf_counter()
    subprocess.run(["cp", "-r", str(folder / "data"), str(into)], check=True)
    took_s = time.perf_counter() - began
    shutil.rmtree(into)
    return took_s
