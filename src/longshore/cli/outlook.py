"""Asks for what `group show` tells beside counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from longshore.cli.view.groups import ShownGroup, parts_of
from longshore.client.connection import Connection
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.grown import with_scopes
from longshore.core.outlook import (
    Forecast,
    cost,
    critical_path,
    forecast,
    remaining,
    usable_slots,
)
from longshore.errors import LongshoreError, Unavailable
from longshore.model.group import ENDED_GROUPS, GATE, Group, GroupState, NodeView
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.run_time import RunTime

_RUNNING_LOOKED_AT: Final = 1_000


async def keys_of(connection: Connection, group: Group, jobs: Collection[Job]) -> dict[UUID, str]:
    """The keys of these jobs in their group; nothing if that is a large one."""
    if not jobs or group.jobs > MAX_PATH_JOBS:
        return {}
    wanted = {job.id for job in jobs}
    return {n.job: n.key async for n in connection.all_nodes(group.id) if n.job in wanted}


async def with_outlook(connection: Connection, shown: ShownGroup) -> ShownGroup:
    """A group with what its first failure cost, its critical path and its expected end.

    Of a large group nothing is added; of one that has ended, only the cost.
    """
    group, failure = shown.group, shown.failure
    has_ended = group.state in ENDED_GROUPS
    if group.jobs > MAX_PATH_JOBS or (has_ended and failure is None):
        return shown
    nodes = with_scopes([node async for node in connection.all_nodes(group.id)])
    if failure is not None:
        fail_fast = group.fail_fast and not group.cancelled_by
        lost = cost(nodes, failure.key, fail_fast=fail_fast)
        shown = shown._replace(failure=failure._replace(cost=lost))
    if has_ended:
        return shown
    gates = [node.key for node in nodes if node.kind == GATE and node.state is JobState.READY]
    shown = shown._replace(gates=tuple(gates), parts=parts_of(nodes))
    live = remaining(nodes)
    times = await _run_times(connection, live)
    path = critical_path(live, times)
    return shown._replace(
        critical_path=path, forecast=await _forecast(connection, group, live, times)
    )


async def _run_times(connection: Connection, live: Sequence[NodeView]) -> Mapping[str, RunTime]:
    try:
        return await connection.run_times({node.kind for node in live}) if live else {}
    except Unavailable:
        raise
    except LongshoreError:
        # A dispatcher of an older version does not know them.
        return {}


async def _forecast(
    connection: Connection, group: Group, live: Sequence[NodeView], times: Mapping[str, RunTime]
) -> Forecast | None:
    if not times or group.state is not GroupState.RUNNING:
        return None
    wanted = JobFilter((JobState.RUNNING,), group=group.id, limit=_RUNNING_LOOKED_AT)
    running = (await connection.jobs(wanted)).jobs
    now = datetime.now(UTC)
    ran_s = {job.id: _ran_s(job, now) for job in running}
    return forecast(live, times, ran_s, usable_slots(live, await connection.capacity()))


def _ran_s(job: Job, now: datetime) -> float:
    return 0.0 if job.started_at is None else (now - job.started_at).total_seconds()
