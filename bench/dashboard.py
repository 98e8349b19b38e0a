"""The dashboard: how long its pages take over a large store, and what open tabs cost.

A real gateway answers, one page after another over one connection. Then 200 tabs are open, as many
at each of four addresses, and nothing happens: what gateway and dispatcher use, and how many
statements reach PostgreSQL, beside the same time with no tab.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

from msgspec import Struct

from bench.fill import Filling, fill
from bench.fleet import Fleet, fleet
from bench.helper import Helper
from bench.http import gateway
from bench.percentiles import Times, times_of
from bench.sql import ask, ask_one
from bench.stage import Stage, migrate
from bench.usage import cpu_s
from longshore.model.job import JobState
from longshore.testing.processes import Process
from longshore.testing.servers import PostgresServer

COUNTING = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track_utility": "off",
}
SEARCH = "kind:noop state:succeeded older:1m"
WARM_UPS = 3
_CALLS = """
SELECT coalesce(sum(calls), 0)::bigint AS calls FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PageTimes(Struct, frozen=True):
    """From the request of a page until all of it is here."""

    store: str
    page: str
    times: Times


class Tabs(Struct, frozen=True):
    """What was used in a second, with so many tabs open and with none, on PostgreSQL.

    The percents are of a core.
    """

    tabs: int
    gateway_percent: float
    dispatcher_percent: float
    statements: float
    idle_gateway_percent: float
    idle_dispatcher_percent: float
    idle_statements: float

    @property
    def more_percent(self) -> float:
        """Of a core, beyond what gateway and dispatcher use with no tab."""
        idle = self.idle_gateway_percent + self.idle_dispatcher_percent
        return self.gateway_percent + self.dispatcher_percent - idle

    @property
    def more_statements(self) -> float:
        """Statements a second, beyond those with no tab."""
        return self.statements - self.idle_statements


class Dashboard(Struct, frozen=True):
    """All that was measured, over a store with so many jobs that ended and that are ready."""

    ended: int
    ready: int
    pages: list[PageTimes]
    tabs: Tabs


def measure(stage: Stage) -> Dashboard:
    """Pages on both stores, tabs on PostgreSQL."""
    with PostgresServer(settings=COUNTING) as server, stage.fresh("sqlite") as in_file:
        on_server = server.create_database("dashboard")
        migrate(on_server)
        ask(on_server, "CREATE EXTENSION pg_stat_statements; SELECT 1")
        with _filled(stage, on_server) as (ours, process, paths):
            pages = list(_pages(stage, "postgres", process, paths))
            tabs = _tabs(stage, on_server, ours, process, list(paths.values()))
        with _filled(stage, in_file) as (_, process, paths):
            pages += _pages(stage, "sqlite", process, paths)
    return Dashboard(stage.sizes.shown_ended, stage.sizes.shown_ready, pages, tabs)


@contextmanager
def _filled(stage: Stage, url: str) -> Iterator[tuple[Fleet, Process, dict[str, str]]]:
    """A fleet and a gateway over a large store, and the pages that are looked at."""
    sizes = stage.sizes
    fill(url, Filling("finished", JobState.SUCCEEDED, sizes.shown_ended, "noop"))
    waiting = Filling("ready", JobState.READY, sizes.shown_ready, "unserved", "unserved")
    fill(url, waiting)
    with (
        fleet(url, stage.folder, workers=1) as ours,
        gateway(stage, ours) as process,
    ):
        ours.run_group(*sizes.graph)
        yield ours, process, _paths(process, sizes.shown_ended // 2)


def _paths(process: Process, job: int) -> dict[str, str]:
    [group] = json.loads(_get(_connected(process), "/dispatcher/groups/?limit=1"))["groups"]
    return {
        "overview": "/",
        "list of jobs": "/jobs/",
        "search": f"/jobs/?q={quote(SEARCH)}",
        "job": f"/jobs/{job}",
        "group": f"/groups/{group['number']}",
    }


def _connected(process: Process) -> HTTPConnection:
    return HTTPConnection(urlsplit(process.facts["http"]).netloc, timeout=60)


def _get(connection: HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {body.decode(errors='replace')[:500]}")
    return body


def _pages(
    stage: Stage, store: str, process: Process, paths: dict[str, str]
) -> Iterator[PageTimes]:
    connection = _connected(process)
    for page, path in paths.items():
        for _ in range(WARM_UPS):
            _get(connection, path)
        times = times_of([_took_ms(connection, path) for _ in range(stage.sizes.page_samples)])
        stage.say(f"{store}, {page}: {times.p50_ms:.1f} ms p50, {times.p99_ms:.1f} ms p99")
        yield PageTimes(store, page, times)
    connection.close()


def _took_ms(connection: HTTPConnection, path: str) -> float:
    began = time.perf_counter()
    _get(connection, path)
    return (time.perf_counter() - began) * 1e3


def _tabs(stage: Stage, url: str, ours: Fleet, process: Process, paths: list[str]) -> Tabs:
    sizes = stage.sizes
    pids = [process.pid, ours.dispatchers[0].pid]
    idle = _used(url, pids, sizes.tabs_s)
    with Helper("http_client", process.facts["http"]) as client:
        number = client.ask(do="tabs", paths=paths[:4], number=sizes.tabs // 4)
        time.sleep(sizes.watch_s / 2)
        found = Tabs(number, *_used(url, pids, sizes.tabs_s), *idle)
    stage.say(
        f"{number} tabs: gateway {found.gateway_percent:.1f} % of a core, dispatcher "
        f"{found.dispatcher_percent:.1f} %, {found.statements:.1f} statements a second; with none "
        f"{found.idle_gateway_percent:.1f} %, {found.idle_dispatcher_percent:.1f} %, "
        f"{found.idle_statements:.1f}"
    )
    return found


def _used(url: str, pids: list[int], seconds: float) -> tuple[float, float, float]:
    """Percents of a core of both processes, and statements a second, without our own."""
    calls, before = _calls(url), [cpu_s([pid]) for pid in pids]
    time.sleep(seconds)
    one, other = (
        100 * (cpu_s([pid]) - was) / seconds for pid, was in zip(pids, before, strict=True)
    )
    return one, other, (_calls(url) - calls - 1) / seconds


def _calls(url: str) -> int:
    return int(ask_one(url, _CALLS)["calls"])
