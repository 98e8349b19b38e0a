"""What processes and a database use up, between two looks."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil
from msgspec import Struct

from bench.sql import ask_one

REPORTED_S = 1.2
"""Backends tell what they did a second after they did it."""

_COUNTERS = """
SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS wal_bytes, d.xact_commit AS commits,
    d.tup_inserted AS inserted, d.tup_updated AS updated, d.tup_deleted AS deleted,
    (SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = 'longshore') AS dead,
    (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
        WHERE relnamespace = 'longshore'::regnamespace AND relkind = 'r') AS disk_bytes
FROM pg_stat_database AS d WHERE d.datname = current_database()
"""


class Counters(Struct, frozen=True):
    """What PostgreSQL has counted; a difference of two is what happened in between."""

    wal_bytes: float
    commits: float
    inserted: float
    updated: float
    deleted: float
    dead: float
    disk_bytes: float

    @property
    def writes(self) -> float:
        """Rows written in any way."""
        return self.inserted + self.updated + self.deleted

    def since(self, before: Counters, divisor: float) -> Counters:
        """What was added, per unit of something."""
        names = self.__struct_fields__
        return Counters(*((getattr(self, n) - getattr(before, n)) / divisor for n in names))


def counters(url: str) -> Counters:
    """What a database has counted so far, once its backends have told."""
    time.sleep(REPORTED_S)
    row = ask_one(url, _COUNTERS)
    return Counters(*(float(row[name] or 0) for name in Counters.__struct_fields__))


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU that these processes and their living children have used."""
    total = 0.0
    for process in (process for pid in pids for process in _tree(pid)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def backends_cpu_s(server: int, database: str) -> float:
    """Seconds of CPU that the living backends of one database have used."""
    found = psutil.process_iter(["ppid", "cmdline"])
    backends = [one for one in found if one.info["ppid"] == server]
    titles = ((one.pid, " ".join(one.info["cmdline"] or ())) for one in backends)
    return cpu_s(pid for pid, title in titles if f" {database} " in title)


def memory_mb(pid: int) -> float:
    """Megabytes in memory of this process and its children."""
    return sum(process.memory_info().rss for process in _tree(pid)) / 1e6
