"""The operations of the API about schedules."""

from __future__ import annotations

from typing import Final

from longshore.client.schedule_document import ScheduleDocument
from longshore.core.access import Right
from longshore.gateway import schedules as s
from longshore.gateway.operation import Operation

_ALL: Final = "/dispatcher/schedules/"
_ONE: Final = "/dispatcher/schedules/{name}"

SCHEDULE_OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="POST",
        path=_ALL,
        id="put_schedule",
        needs=Right.SUBMIT,
        summary="Make a schedule, or change one.",
        do=s.put,
        query=s.PutQuery,
        body=ScheduleDocument,
        answers={201: s.ShownSchedule, 200: s.ShownSchedule},
    ),
    Operation(
        method="GET",
        path=_ALL,
        id="list_schedules",
        needs=Right.READ,
        summary="List schedules by name.",
        do=s.list_schedules,
        query=s.SchedulesQuery,
        answers={200: s.ScheduleList},
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="show_schedule",
        needs=Right.READ,
        summary="Show a schedule, what it waits for, and what became of its last times.",
        do=s.show,
        query=s.ScheduleQuery,
        answers={200: s.WholeSchedule},
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        id="remove_schedule",
        needs=Right.SUBMIT,
        summary="Remove a schedule. What it submitted stays.",
        do=s.remove,
        answers={200: s.ScheduleRemoved},
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/preview",
        id="preview_schedule",
        needs=Right.READ,
        summary="Show the next times of a schedule, with their offsets.",
        do=s.preview,
        query=s.PreviewQuery,
        answers={200: s.Preview},
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/pause",
        id="pause_schedule",
        needs=Right.SUBMIT,
        summary="Let a schedule skip its times.",
        do=s.pause,
        body=s.PauseBody,
        may_lack_body=True,
        answers={200: s.ShownSchedule},
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/resume",
        id="resume_schedule",
        needs=Right.SUBMIT,
        summary="Let a paused schedule go on.",
        do=s.resume,
        answers={200: s.ShownSchedule},
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/trigger",
        id="trigger_schedule",
        needs=Right.SUBMIT,
        summary="Submit what a schedule submits now, whatever runs.",
        do=s.trigger,
        answers={200: s.ShownFire},
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/backfill",
        id="backfill_schedule",
        needs=Right.SUBMIT,
        summary="Submit what the times of a span did not submit; with `dry_run`, say what.",
        do=s.backfill,
        body=s.BackfillBody,
        answers={200: s.Backfilled},
    ),
)
