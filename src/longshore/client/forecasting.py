"""Asks for what a forecast of a group needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from longshore.client.connection import Connection
from longshore.core.outlook import Forecast, forecast, usable_slots
from longshore.errors import LongshoreError, Unavailable
from longshore.model.group import Group, GroupState, NodeView
from longshore.model.job import Job, JobFilter, JobState
from longshore.model.run_time import RunTime

_RUNNING_LOOKED_AT: Final = 1_000


async def run_times_of(connection: Connection, live: Sequence[NodeView]) -> Mapping[str, RunTime]:
    """How long the kinds of these jobs run, where that is known."""
    try:
        return await connection.run_times({node.kind for node in live}) if live else {}
    except Unavailable:
        raise
    except LongshoreError:
        # A dispatcher of an older version does not know them.
        return {}


async def forecast_of(
    connection: Connection, group: Group, live: Sequence[NodeView], times: Mapping[str, RunTime]
) -> Forecast | None:
    """When these jobs will have ended, about; None where nothing tells."""
    if not times or group.state is not GroupState.RUNNING:
        return None
    wanted = JobFilter((JobState.RUNNING,), group=group.id, limit=_RUNNING_LOOKED_AT)
    running = (await connection.jobs(wanted)).jobs
    now = datetime.now(UTC)
    ran_s = {job.id: _ran_s(job, now) for job in running}
    return forecast(live, times, ran_s, usable_slots(live, await connection.capacity()))


def _ran_s(job: Job, now: datetime) -> float:
    return 0.0 if job.started_at is None else (now - job.started_at).total_seconds()
