"""How a schedule changes when somebody declares, pauses or resumes it."""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from longshore.core.schedules import begun
from longshore.errors import Conflict
from longshore.model.job import Refused
from longshore.model.schedule import NewSchedule, Schedule


def put(
    known: Schedule | None, new: NewSchedule, now: datetime, *, replace: bool
) -> Schedule | Refused:
    """The schedule after this was declared; the known one itself if nothing changes.

    A pause and what was decided stay. Changed times count from now on.
    """
    if known is None:
        state, look_at = begun(new, now)
        return Schedule(new=new, state=state, version=1, created_at=now, look_at=look_at)
    if known.new.app != new.app:
        return Refused(new.id, Conflict.code, _other_owner(known.new))
    if known.new.is_like(new):
        return known
    if not replace:
        return Refused(
            new.id,
            Conflict.code,
            f"there is another schedule '{new.name}'; replace it (--replace), or take another name",
        )
    state = known.state
    if known.new.timing != new.timing:
        state = structs.replace(state, decided_to=max(now, state.decided_to))
    new = structs.replace(new, id=known.new.id)
    return structs.replace(known, new=new, state=state, version=known.version + 1, look_at=now)


def _other_owner(known: NewSchedule) -> str:
    if known.app:
        return (
            f"schedule '{known.name}' is declared by app '{known.app}'; change it there, or take "
            "another name"
        )
    return (
        f"schedule '{known.name}' was made by hand; remove it (`longshore schedules rm "
        f"{known.name}`), or give the one of the app another name"
    )


def pause(known: Schedule, paused: bool, by: str, note: str, now: datetime) -> Schedule:
    """The schedule after a pause or a resume; the known one itself if nothing changes."""
    state = known.state
    if (state.paused_at is not None) == paused:
        return known
    if paused:
        state = structs.replace(state, paused_at=now, paused_by=by, note=note)
        return structs.replace(known, state=state, version=known.version + 1)
    state = structs.replace(state, paused_at=None, paused_by="", note="", failures=0)
    return structs.replace(known, state=state, version=known.version + 1, look_at=now)
