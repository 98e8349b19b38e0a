"""Why an actor does nothing, for every status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from longshore.core.why import Facts, why
from longshore.core.why_actor import why_actor
from longshore.model.actor import Actor, ActorStatus, ActorTerms, Timer
from longshore.model.job import JobError, JobState, Options, Reason
from longshore.model.worker import KindInfo, WorkerInfo, WorkerView
from longshore.testing.builders import a_job, new_id
from longshore.testing.memory_rows import new_row

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
MICROS = int(LATER.timestamp() * 1_000_000)


def actor(status: ActorStatus, **changes: Any) -> Actor:
    shown = Actor(
        id=new_id(),
        type="Club",
        key="ann",
        status=status,
        terms=ActorTerms(),
        created_at=NOW,
        turn=3,
        state=b"",
        version=2,
    )
    return structs.replace(shown, **changes)


@pytest.mark.parametrize(
    ("status", "changes", "of_turn", "said"),
    [
        ("sleeping", {}, "", "it sleeps until a message comes"),
        (
            "sleeping",
            {"next_at": LATER, "timers": (Timer("remind", at=MICROS),)},
            "delayed until …",
            "it sleeps until 2026-01-31 13:00:00 UTC, when timer 'remind' is due, or until",
        ),
        (
            "sleeping",
            {"next_at": LATER, "unread": 1},
            "delayed until …",
            "it sleeps until 2026-01-31 13:00:00 UTC, when a delayed message is due, or until",
        ),
        (
            "sleeping",
            {"next_at": LATER, "error": JobError(Reason.RAISED, "boom")},
            "delayed until 13:00 by its 1st retry, after ValueError: boom",
            "its turn is delayed until 13:00 by its 1st retry, after ValueError: boom",
        ),
        (
            "paused",
            {"unread": 1},
            "its actor is paused; resume the actor to let it go on",
            "it is paused, with 1 unread message; `longshore actor resume Club ann` lets it go on",
        ),
        (
            "paused",
            {},
            "running on dock for 3 s",
            "lets it go on. Its turn: running on dock for 3 s",
        ),
        ("failed", {}, "failed at 12:00: boom", "its turn failed at 12:00: boom. Its state and"),
        ("failed", {}, "failed: boom", "`longshore actor resume Club ann` tries the turn again"),
        (
            "stopping",
            {},
            "being cancelled; dock was told to stop it",
            "it is being removed, which its turn holds up: being cancelled; dock was told",
        ),
        ("ready", {}, "no worker is connected", "its turn is ready: no worker is connected"),
        ("running", {}, "running on dock for 3 s", "its turn is running on dock for 3 s"),
        (
            "running",
            {"unread": 3},
            "running on dock for 3 s",
            "its turn is running on dock for 3 s; it has 3 unread, with what the turn handles",
        ),
    ],
)
def test_it_says_what_would_change_it(
    status: str, changes: dict[str, Any], of_turn: str, said: str
) -> None:
    assert said in why_actor(actor(ActorStatus(status), **changes), of_turn)


def a_worker(name: str, *kinds: str, alive: bool = True) -> WorkerView:
    info = WorkerInfo(id=new_id(), name=name, kinds=dict.fromkeys(kinds, KindInfo()))
    return WorkerView(
        info=info,
        session=1,
        dispatcher=new_id(),
        alive=alive,
        draining=False,
        running={},
        started_at=NOW,
        attended_at=NOW,
    )


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (
            (a_worker("old", "Club@1"), a_worker("job", "work")),
            "its state is of version 2, and no live worker serves that: old serves up to version 1",
        ),
        (
            (a_worker("job", "work", "Clubs@1"),),
            "no live worker serves actors of type 'Club' (nearest: 'Clubs')",
        ),
        ((), "no worker is connected"),
    ],
)
def test_a_turn_that_nobody_serves_says_which_version_waits_for_whom(
    workers: tuple[WorkerView, ...], said: str
) -> None:
    job = structs.replace(a_job(kind="Club@2"), options=Options(turn=True))
    turn = new_row(job, 0, 1, NOW).job
    assert turn.state is JobState.READY
    facts = Facts(held_back=None, workers=workers, ahead=0, now=NOW)
    assert said in why(turn, facts)


@pytest.mark.parametrize(
    ("ran_s", "timeout_s", "hinted"), [(59, None, False), (60, None, True), (3_600, 7_200.0, False)]
)
def test_a_turn_that_may_hang_says_how_to_end_it(
    ran_s: int, timeout_s: float | None, hinted: bool
) -> None:
    job = structs.replace(a_job(kind="Club@2"), options=Options(turn=True, timeout_s=timeout_s))
    running = structs.replace(new_row(job, 0, 7, NOW).job, state=JobState.RUNNING, started_at=NOW)
    facts = Facts(held_back=None, workers=(), ahead=0, now=NOW + timedelta(seconds=ran_s))
    assert (
        "`longshore cancel 7` does, and leaves its actor failed" in why(running, facts)
    ) is hinted
