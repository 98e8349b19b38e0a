"""Recovery: kill -9 of a worker and of a dispatcher under load, and how soon work goes on."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec
from msgspec import Struct

from bench.fleet import Fleet, fleet
from bench.sql import ask, ask_one
from bench.stage import Stage
from longshore.store.postgres.states import ENDED, READY
from longshore.testing.processes import Process

OUTSTANDING = 2_000
BEFORE_S = 2.0
AFTER_S = 3.0
LOOK_S = 0.25
MOST_S = 60.0

_NOW = "SELECT clock_timestamp() AS now"
# Cut off: under way on these workers at that time, or begun again since. Nothing else is retried.
_CUT_OFF = "(attempt > 1 OR (worker = ANY($1::uuid[]) AND started_at <= $2))"
_LEFT = f"""
SELECT count(*) AS left FROM longshore.job
WHERE state < {ENDED} AND ({_CUT_OFF} OR (state = {READY} AND attempt = 1))
"""
_RAN = f"""
SELECT count(*) AS jobs, max(ended_at) AS last FROM longshore.job
WHERE ended_at > $2 AND {_CUT_OFF}
"""
_GAPS = """
SELECT max(extract(epoch FROM gap))::float8 AS gap_s, count(*) AS jobs FROM (
    SELECT ended_at - lag(ended_at) OVER (ORDER BY ended_at) AS gap
    FROM longshore.job WHERE ended_at >= $1
) AS g
"""


class Kill(Struct, frozen=True):
    """Who was killed, how long nothing was recorded, how long until what it held had run.

    A worker's jobs run elsewhere; those on a dispatcher's workers are recorded by the other one.

    `usual_gap_s` is the longest gap before the kill, under the same load.
    """

    role: str
    usual_gap_s: float
    gap_s: float
    held: int
    ran_s: float | None


class Recovery(Struct, frozen=True):
    """Both kills."""

    kills: list[Kill]


def measure(stage: Stage) -> Recovery:
    """Two dispatchers, three workers, and a client that keeps jobs under way."""
    kills = []
    for role in ("worker", "dispatcher"):
        with (
            stage.fresh() as url,
            fleet(url, stage.folder, dispatchers=2, workers=3, slots=100) as ours,
        ):
            ours.run(1_000)
            kills.append(_kill(ours, role))
        last = kills[-1]
        ran = "" if last.ran_s is None else f", its {last.held} jobs had run in {last.ran_s:.1f} s"
        stage.say(f"{role} killed: longest gap {last.gap_s:.2f} s{ran}")
    return Recovery(kills)


def _kill(ours: Fleet, role: str) -> Kill:
    victim = (ours.workers if role == "worker" else ours.dispatchers)[0]
    # The first worker of three, or those two that turned to the first of two dispatchers.
    cut_off = _ids(ours.url, ours.workers[:1] if role == "worker" else ours.workers[::2])
    began = ask_one(ours.url, _NOW)["now"]
    for client in ours.clients:
        client.ask(do="flow", outstanding=OUTSTANDING // len(ours.clients))
    time.sleep(BEFORE_S)
    usual = ask_one(ours.url, _GAPS, began)["gap_s"] or 0.0
    killed = ask_one(ours.url, _NOW)["now"]
    victim.kill()
    _await_run(ours.url, cut_off, killed)
    # What a dead worker had reported before it died was not cut off.
    ran = ask_one(ours.url, _RAN, [] if role == "worker" else cut_off, killed)
    ran_s = (ran["last"] - killed).total_seconds() if ran["last"] else None
    time.sleep(AFTER_S)
    gap = ask_one(ours.url, _GAPS, killed)["gap_s"] or MOST_S
    for client in ours.clients:
        client.ask(do="stop")
    return Kill(role, usual, gap, ran["jobs"], ran_s)


def _ids(url: str, workers: list[Process]) -> list[object]:
    """The ids under which these processes are registered."""
    pids = [worker.pid for worker in workers]
    rows = ask(url, "SELECT id, info FROM longshore.worker")
    ids = [row["id"] for row in rows if _pid_of(row["info"]) in pids]
    assert len(ids) == len(pids), f"{len(ids)} workers are registered for the processes {pids}"
    return ids


def _pid_of(info: bytes) -> int:
    return int(msgspec.msgpack.decode(info).get("pid", 0))


def _await_run(url: str, workers: list[object], killed: datetime) -> None:
    """Waits until no job is left that was cut off."""
    deadline = time.monotonic() + MOST_S
    while left := ask_one(url, _LEFT, workers, killed)["left"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} jobs that were cut off have not run after {MOST_S:g} s")
        time.sleep(LOOK_S)
