"""What `longshore limits try` reads: rules in TOML, and traces of jobs in CSV or from the store."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final

from longshore.cli.file_input import file_bytes, file_name
from longshore.client.connection import Connection
from longshore.core.fairness import why_not_fair
from longshore.core.key_limits import why_no_rule, why_not
from longshore.core.limits import MAX_DURATION_S
from longshore.core.rates import parse_rate
from longshore.errors import InvalidInput
from longshore.model.job import Job, JobFilter
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.testing.rehearsal import Arrival

OWN_COLUMNS: Final = ("at_s", "run_s", "kind", "queue", "priority", "units", "keys", "fair")
"""The columns of a trace that are no keys."""
_OF_RULE: Final = ("concurrency", "rate", "burst", "weight")
_PAGE: Final = 500


def read_rules(file: str) -> list[LimitRule]:
    """The rules of a file: a table `limits` with a table for each pattern."""
    text, name = _text(file), file_name(file)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{name} is no TOML: {error}") from None
    tables = document.get("limits")
    if not isinstance(tables, dict) or not tables or len(document) > 1:
        raise InvalidInput(
            f'{name} has to consist of tables like [limits."tenant=*"], with concurrency, rate, '
            "burst and weight"
        )
    return [_rule(pattern, of, _where(name, text, pattern)) for pattern, of in tables.items()]


def _rule(pattern: str, given: object, where: str) -> LimitRule:
    if not isinstance(given, dict):
        raise InvalidInput(f"{where}: '{pattern}' has to be a table, [limits.\"{pattern}\"]")
    if unknown := sorted(given.keys() - set(_OF_RULE)):
        known = ", ".join(_OF_RULE)
        raise InvalidInput(f"{where}: '{pattern}' has '{unknown[0]}'; a rule has {known}")
    concurrency, burst = _whole(given, "concurrency", where), _whole(given, "burst", where)
    weight = given.get("weight")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        raise InvalidInput(f"{where}: weight has to be a number, not {weight!r}")
    rate = _rate(given.get("rate"), burst, where)
    rule = LimitRule(pattern, concurrency, rate, weight=weight)
    if why := why_no_rule(rule):
        raise InvalidInput(f"{where}: {why}")
    return rule


def _rate(text: object, burst: int | None, where: str) -> Rate | None:
    if text is None:
        if burst is not None:
            raise InvalidInput(f"{where}: burst goes with rate")
        return None
    try:
        return parse_rate(str(text), 1 if burst is None else burst)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _whole(given: Mapping[str, Any], name: str, where: str) -> int | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidInput(f"{where}: {name} has to be a whole number, not {value!r}")
    return value


def _where(name: str, text: str, pattern: str) -> str:
    """The line that names a pattern, as far as it is written as it is."""
    lines = enumerate(text.splitlines(), 1)
    at = next((number for number, line in lines if pattern in line), None)
    return name if at is None else f"{name}, line {at}"


def read_trace(file: str) -> list[Arrival]:
    """The jobs of a CSV file. Columns that are not `OWN_COLUMNS` are names of keys."""
    name = file_name(file)
    reader = csv.DictReader(io.StringIO(_text(file), newline=""), strict=True)
    header = reader.fieldnames or []
    for column in ("at_s", "run_s"):
        if column not in header:
            raise InvalidInput(
                f"{name}, line 1: there is no column '{column}'; the header names at_s, run_s and "
                "the keys, such as at_s,run_s,tenant"
            )
    try:
        return [_arrival(row, f"{name}, line {line}") for line, row in _rows(reader)]
    except csv.Error as error:
        raise InvalidInput(f"{name}, line {reader.line_num}: {error}") from None


def _rows(reader: csv.DictReader[str]) -> Iterator[tuple[int, dict[str | Any, Any]]]:
    for row in reader:
        yield reader.line_num, row


def _arrival(row: Mapping[str | Any, Any], where: str) -> Arrival:
    if None in row or None in row.values():
        raise InvalidInput(f"{where}: it has not as many fields as the header")
    units = _number(row, "units", where, 1)
    found = {f"{name}={row[name]}": None for name in row if name not in OWN_COLUMNS and row[name]}
    keys = [*found, *row.get("keys", "").split()]
    limits = tuple(JobLimit(key, units=int(units)) for key in keys)
    if why := why_not(limits):
        raise InvalidInput(f"{where}: {why}")
    fair = row.get("fair", "")
    if fair and (why := why_not_fair(fair)):
        raise InvalidInput(f"{where}: {why}")
    return Arrival(
        _number(row, "at_s", where),
        _number(row, "run_s", where),
        limits,
        row.get("kind") or "work",
        row.get("queue") or "default",
        int(_number(row, "priority", where, 0, -32768)),
        fair,
    )


def _number(
    row: Mapping[str, str], name: str, where: str, default: float | None = None, least: float = 0.0
) -> float:
    text = row.get(name, "")
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(f"{where}: {name} is {text!r}, which is no number") from None
    if not (isfinite(value) and least <= value <= MAX_DURATION_S):
        raise InvalidInput(f"{where}: {name} is {text}; it has to be {least:g} or more")
    if default is not None and value != int(value):
        raise InvalidInput(f"{where}: {name} is {text}; it has to be a whole number")
    return value


def _text(file: str) -> str:
    try:
        return file_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file_name(file)} is not UTF-8 text: {error.reason}") from None


async def trace_of_store(connection: Connection, since: datetime, most: int) -> list[Arrival]:
    """The jobs that came since then and have run, with the keys that they have."""
    found: list[Job] = []
    before: int | None = None
    while len(found) <= most:
        wanted = JobFilter(since=since, before=before, limit=_PAGE)
        page = await connection.jobs(wanted)
        found += [job for job in page.jobs if job.started_at and job.ended_at]
        last = page.stopped_at if not page.jobs else page.jobs[-1].number
        if last is None or (len(page.jobs) < _PAGE and page.stopped_at is None):
            break
        before = last
    return [_of_job(job, since) for job in found]


def _of_job(job: Job, since: datetime) -> Arrival:
    assert job.started_at is not None
    assert job.ended_at is not None
    came = max(job.created_at, job.run_at or job.created_at)
    return Arrival(
        max(0.0, (came - since).total_seconds()),
        max(0.0, (job.ended_at - job.started_at).total_seconds()),
        job.options.limits,
        job.kind,
        job.queue,
        job.priority,
        job.options.fair,
    )
