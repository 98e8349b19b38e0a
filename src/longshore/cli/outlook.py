"""Asks for what `group show` tells beside counts."""

from __future__ import annotations

from longshore.cli.view.groups import ShownGroup, parts_of
from longshore.client.connection import Connection
from longshore.client.forecasting import forecast_of, run_times_of
from longshore.client.neighbours import MAX_PATH_JOBS
from longshore.core.grown import with_scopes
from longshore.core.outlook import (
    cost,
    critical_path,
    remaining,
)
from longshore.model.group import ENDED_GROUPS, GATE
from longshore.model.job import JobState


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
    times = await run_times_of(connection, live)
    path = critical_path(live, times)
    return shown._replace(
        critical_path=path, forecast=await forecast_of(connection, group, live, times)
    )
