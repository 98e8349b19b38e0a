"""Schedules and their fires in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from longshore.core.schedule_changes import pause, put
from longshore.core.schedules import FIRES_KEPT
from longshore.core.watching import outcomes_of
from longshore.model.job import JobState, Refused
from longshore.model.notice import Notice
from longshore.model.schedule import (
    Decision,
    DueSchedules,
    Examined,
    Fate,
    Fire,
    FireResult,
    Made,
    NewSchedule,
    PendingFire,
    Schedule,
)
from longshore.store.rows import clean, later, micros, moment
from longshore.store.schedule_rows import MOST_OPEN, pack_new, pack_state, unpack_new, unpack_state
from longshore.store.sqlite.transaction import Snapshot, Transaction

_SCHEDULE: Final = "SELECT number, version, created_at, look_at, state, new FROM schedule"
_FIRE: Final = """SELECT nominal_at, fate, why, decided_at, last_at, count, late, subject, is_group,
    pending, outcome, ended_at, settled FROM fire"""
_OPEN: Final = f"""{_FIRE} WHERE schedule = ? AND settled = 0
    ORDER BY outcome IS NULL, nominal_at LIMIT {MOST_OPEN}"""
_NUMBER: Final = "(SELECT number FROM schedule WHERE id = ?1)"
_PUT_FIRE: Final = """
    INSERT OR REPLACE INTO fire (schedule, nominal_at, fate, why, decided_at, last_at, count, late,
        subject, is_group, pending, outcome, ended_at, settled, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_FORGET: Final = f"""
    DELETE FROM fire WHERE schedule = ?1 AND settled = 1 AND nominal_at < (
        SELECT nominal_at FROM fire WHERE schedule = ?1 AND settled = 1
        ORDER BY nominal_at DESC LIMIT 1 OFFSET {FIRES_KEPT - 1})"""
_LOOK_NOW: Final = """
    UPDATE schedule SET version = version + 1, look_at = min(coalesce(look_at, ?1), ?1)
    WHERE id = ?2"""


def put_schedule(tx: Transaction, new: NewSchedule, *, replace: bool = False) -> Schedule | Refused:
    """Makes a schedule, or changes the one of that name."""
    found = _found(tx, new.name)
    known = None if found is None else found[1]
    made = put(known, new, moment(tx.now), replace=replace)
    if isinstance(made, Schedule) and made is not known:
        _write(tx, made, is_new=known is None)
    return made


def remove_schedule(tx: Transaction, name: str, app: str | None = None) -> bool:
    """Removes a schedule and its fires."""
    found = _found(tx, name)
    if found is None or app not in (None, found[1].new.app):
        return False
    tx.execute("DELETE FROM fire WHERE schedule = ?", (found[0],))
    tx.execute("DELETE FROM schedule WHERE number = ?", (found[0],))
    return True


def pause_schedule(
    tx: Transaction, name: str, paused: bool, by: str, note: str = ""
) -> Schedule | None:
    """Pauses or resumes a schedule."""
    found = _found(tx, name)
    if found is None:
        return None
    known = found[1]
    made = pause(known, paused, clean(by), clean(note), moment(tx.now))
    if made is not known:
        _write(tx, made, is_new=False)
    return made


def _found(tx: Snapshot, name: str) -> tuple[int, Schedule] | None:
    row = tx.execute(f"{_SCHEDULE} WHERE name = ?", (clean(name),)).fetchone()
    return None if row is None else (row[0], _schedule(row))


def _write(tx: Transaction, made: Schedule, *, is_new: bool) -> None:
    look_at = None if made.look_at is None else micros(made.look_at)
    values = (made.version, look_at, pack_state(made.state), pack_new(made.new), made.new.id.bytes)
    if is_new:
        names = (clean(made.new.name), clean(made.new.app), micros(made.created_at))
        tx.execute(
            """INSERT INTO schedule (version, look_at, state, new, id, name, app, created_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            (*values, *names),
        )
    else:
        tx.execute(
            "UPDATE schedule SET version = ?, look_at = ?, state = ?, new = ? WHERE id = ?", values
        )


# reading


def schedule(tx: Snapshot, name: str) -> Examined | None:
    """A schedule with its fires that are not settled."""
    found = _found(tx, name)
    return None if found is None else _examined(tx, *found)


def schedules(
    tx: Snapshot, after: str = "", most: int = 100, app: str | None = None
) -> list[Schedule]:
    """Schedules by name."""
    rows = tx.execute(
        f"""{_SCHEDULE} WHERE name > ?1 AND (?2 IS NULL OR app = ?2) ORDER BY name LIMIT ?3""",
        (clean(after), app, most),
    ).fetchall()
    return [*map(_schedule, rows)]


def fires(
    tx: Snapshot, schedule: UUID, before: datetime | None = None, most: int = 20
) -> list[Fire]:
    """Fires of a schedule, newest first."""
    rows = tx.execute(
        f"""{_FIRE} WHERE schedule = {_NUMBER} AND (?2 IS NULL OR nominal_at < ?2)
            ORDER BY nominal_at DESC LIMIT ?3""",
        (schedule.bytes, None if before is None else micros(before), most),
    ).fetchall()
    return [*map(_fire, rows)]


def fires_between(tx: Snapshot, schedule: UUID, first: datetime, last: datetime) -> list[Fire]:
    """Fires of a schedule that stand for times in this span, oldest first."""
    rows = tx.execute(
        f"""{_FIRE} WHERE schedule = {_NUMBER} AND nominal_at <= ?3
            AND coalesce(last_at, nominal_at) >= ?2 ORDER BY nominal_at""",
        (schedule.bytes, micros(first), micros(last)),
    ).fetchall()
    return [*map(_fire, rows)]


def fire_of(tx: Snapshot, subject: UUID) -> Fire | None:
    """The fire that submitted this job or group."""
    row = tx.execute(f"{_FIRE} WHERE subject = ?", (subject.bytes,)).fetchone()
    return None if row is None else _fire(row)


def due_schedules(tx: Snapshot, most: int = 500) -> DueSchedules:
    """Schedules that are to be looked at, the most overdue first."""
    rows = tx.execute(
        f"{_SCHEDULE} WHERE look_at <= ? ORDER BY look_at LIMIT ?", (tx.now, most)
    ).fetchall()
    [following] = tx.execute(
        "SELECT min(look_at) FROM schedule WHERE look_at > ?", (tx.now,)
    ).fetchone()
    examined = tuple(_examined(tx, row[0], _schedule(row)) for row in rows)
    if len(rows) == most:
        return DueSchedules(examined, 0.0)
    return DueSchedules(examined, None if following is None else (following - tx.now) / 1e6)


def pending_fires(tx: Snapshot, older_than_s: float, most: int = 500) -> list[PendingFire]:
    """Submits that were decided so long ago and are still to be made."""
    before = tx.now - (later(tx.now, older_than_s) - tx.now)
    rows = tx.execute(
        """SELECT s.id, f.nominal_at, f.body FROM fire AS f JOIN schedule AS s
            ON s.number = f.schedule
        WHERE f.pending = 1 AND f.decided_at <= ? ORDER BY f.decided_at LIMIT ?""",
        (before, most),
    ).fetchall()
    return [PendingFire(UUID(bytes=id), moment(at), body) for id, at, body in rows]


def _examined(tx: Snapshot, number: int, found: Schedule) -> Examined:
    rows = tx.execute(_OPEN, (number,)).fetchall()
    return Examined(found, tuple(map(_fire, rows)), moment(tx.now))


# what is decided


def record_fires(tx: Transaction, decisions: Sequence[Decision]) -> list[bool]:
    """Writes what was decided; answers for each whether it counts."""
    return [_record(tx, one) for one in decisions]


def _record(tx: Transaction, decision: Decision) -> bool:
    look_at = None if decision.look_at is None else micros(decision.look_at)
    number = tx.execute(
        """UPDATE schedule SET version = version + 1, state = ?, look_at = ?
        WHERE id = ? AND version = ? RETURNING number""",
        (pack_state(decision.state), look_at, decision.schedule.bytes, decision.version),
    ).fetchone()
    if number is None:
        return False
    for made in decision.made:
        tx.execute(_PUT_FIRE, (number[0], *_columns(made)))
    if decision.made:
        tx.execute(_FORGET, number)
    return True


def fires_submitted(tx: Transaction, results: Sequence[FireResult]) -> None:
    """These submits were made, or refused."""
    for one in results:
        key = (one.schedule.bytes, micros(one.nominal_at))
        if not one.refused:
            tx.execute(
                f"""UPDATE fire SET pending = 0, body = NULL
                WHERE schedule = {_NUMBER} AND nominal_at = ?2 AND pending = 1""",
                key,
            )
        elif tx.execute(
            f"""UPDATE fire SET pending = 0, body = NULL, subject = NULL, settled = 1, fate = ?3,
                why = ?4
            WHERE schedule = {_NUMBER} AND nominal_at = ?2 AND pending = 1""",
            (*key, Fate.SKIPPED.value, clean(one.refused)),
        ).rowcount:
            tx.execute(_LOOK_NOW, (tx.now, one.schedule.bytes))


def tell_schedules(tx: Transaction, notices: Sequence[Notice]) -> bool:
    """Schedules hear how what they submitted ended; answers whether any did."""
    outcomes = outcomes_of(notices)
    for schedule, subject, state in outcomes:
        tx.execute(
            "UPDATE fire SET outcome = ?, ended_at = ?, settled = 0 WHERE subject = ?",
            (state.value, tx.now, subject.bytes),
        )
        tx.execute(_LOOK_NOW, (tx.now, schedule.bytes))
    return bool(outcomes)


# rows


def _schedule(row: tuple[Any, ...]) -> Schedule:
    _, version, created_at, look_at, state, new = row
    return Schedule(
        new=unpack_new(new),
        state=unpack_state(state),
        version=version,
        created_at=moment(created_at),
        look_at=None if look_at is None else moment(look_at),
    )


def _fire(row: tuple[Any, ...]) -> Fire:
    at, fate, why, decided_at, last_at, count, late, subject, is_group, *rest = row
    pending, outcome, ended_at, settled = rest
    return Fire(
        nominal_at=moment(at),
        fate=Fate(fate),
        why=why,
        decided_at=_moment(decided_at),
        last_at=_moment(last_at),
        count=count,
        late=bool(late),
        subject=None if subject is None else UUID(bytes=subject),
        is_group=bool(is_group),
        pending=bool(pending),
        outcome=None if outcome is None else JobState(outcome),
        ended_at=_moment(ended_at),
        settled=bool(settled),
    )


def _moment(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


def _columns(made: Made) -> tuple[Any, ...]:
    fire = made.fire
    return (
        micros(fire.nominal_at),
        fire.fate.value,
        clean(fire.why),
        None if fire.decided_at is None else micros(fire.decided_at),
        None if fire.last_at is None else micros(fire.last_at),
        fire.count,
        fire.late,
        None if fire.subject is None else fire.subject.bytes,
        fire.is_group,
        fire.pending,
        None if fire.outcome is None else fire.outcome.value,
        None if fire.ended_at is None else micros(fire.ended_at),
        fire.settled,
        made.body if fire.pending else None,
    )
