"""What the overview says is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import structs

from longshore.core.blocking import Cause, lane_views
from longshore.core.lanes import lane_of
from longshore.core.troubles import About, SeenDispatcher, troubles
from longshore.model.depth import LaneDepth, LaneView
from longshore.model.group import Group, GroupState
from longshore.model.job import Job, JobState
from longshore.model.limits import KeyView, Rate
from longshore.model.schedule import NewSchedule, Schedule, ScheduleState, Spec, Timing
from longshore.testing.builders import a_job
from longshore.testing.memory_rows import new_row

AT = datetime(2026, 1, 1, tzinfo=UTC)


def told(*lanes: LaneView, dispatchers: tuple[SeenDispatcher, ...] = ()) -> list[str]:
    found = troubles(lanes, (), dispatchers)
    return [one.words for one in found if one.words != "no worker is alive"]


def lane(**more: object) -> LaneView:
    return LaneView(**{"queue": "mail", "kind": "send", "oldest_at": AT, **more})  # type: ignore[arg-type]


def test_a_lane_that_nobody_serves() -> None:
    unserved = lane(counts={"ready": 3}, held_back=Cause.NO_WORKER.value)
    [found, _] = troubles([unserved], (), ())
    assert found.words == ("3 ready jobs of kind 'send' in queue 'mail': no live worker serves it")
    assert (found.about, found.query) == (About.JOBS, "kind:send queue:mail state:ready")
    assert found.since == AT


def test_busy_slots_are_no_trouble() -> None:
    assert told(lane(counts={"ready": 3}, held_back=Cause.BUSY.value)) == []


def test_a_paused_queue_with_jobs_and_one_without() -> None:
    held = {"paused": True, "held_back": Cause.PAUSED_QUEUE.value}
    full = lane(counts={"ready": 2}, **held), lane(kind="other", counts={"ready": 1}, **held)
    assert told(*full, lane(queue="idle", paused=True)) == [
        "queue 'mail' is paused, and 3 ready jobs wait in it"
    ]


def test_a_paused_queue_says_since_when_it_is_paused_not_since_when_jobs_wait() -> None:
    paused_at = AT - timedelta(days=1)
    held = lane(paused=True, counts={"ready": 2}, paused_at=paused_at)
    [found, _] = troubles([held], (), ())
    assert (found.about, found.since) == (About.QUEUES, paused_at)


def test_a_group_that_makes_no_progress_though_it_could() -> None:
    group = Group(
        id=UUID(int=1),
        number=7,
        name="nightly",
        state=GroupState.RUNNING,
        jobs=3,
        fail_fast=False,
        labels=(),
        created_at=AT,
        stalled_at=AT,
    )
    [found, _] = troubles((), (), (), stalled=[group])
    assert found.words == "group 7 (nightly) makes no progress though it could"
    assert (found.about, found.query, found.since, found.grave) == (About.GROUPS, "7", AT, True)


def test_a_key_whose_rate_keeps_jobs_waiting() -> None:
    rate = Rate(100, 60.0, 20)
    waits = KeyView("tenant=a", rate=rate, is_waited_for=True, next_at=AT)
    idle = KeyView("tenant=b", rate=rate, is_waited_for=False, next_at=AT)
    found = troubles((), (), (), keys=[waits, idle])
    assert [one.words for one in found if one.about is About.LIMITS] == [
        "key tenant=a is at its rate (100/min), and jobs wait for it"
    ]


def test_a_silent_dispatcher_comes_first() -> None:
    unserved = lane(counts={"ready": 1}, held_back=Cause.NO_WORKER.value)
    words = told(unserved, dispatchers=(SeenDispatcher("a", False, 9.0),))
    assert words[0] == "dispatcher a is silent: it does not renew its lease"


def test_a_kind_fails_by_its_share() -> None:
    often = lane(kind="often", counts={"failed": 4, "succeeded": 6})
    seldom = lane(kind="seldom", counts={"failed": 4, "succeeded": 96})
    few = lane(kind="few", counts={"failed": 2})
    assert told(often, seldom, few) == ["kind 'often' fails: 4 of the 10 kept jobs that ran"]


def test_lanes_say_what_holds_them_back() -> None:
    ready = LaneDepth(lane_of("mail", "send", ""), {JobState.READY: 2, JobState.FAILED: 0})
    done = LaneDepth(lane_of("mail", "done", ""), {JobState.SUCCEEDED: 2}, paused=True)
    assert lane_views([ready, done], ()) == [
        LaneView(queue="mail", kind="send", counts={"ready": 2}, held_back="no_worker"),
        LaneView(queue="mail", kind="done", counts={"succeeded": 2}, paused=True),
    ]


def test_a_key_that_is_full_and_waited_for() -> None:
    full = KeyView("tenant=a", 2, held=2, is_waited_for=True, full_at=AT)
    [found] = [one for one in troubles((), (), (), [full]) if one.about is About.LIMITS]
    assert found.words == "key tenant=a is full (2 of 2 in use), and jobs wait for it"
    assert (found.since, found.grave) == (AT, False)


def test_failed_actors_are_told_of_by_their_type_and_are_no_failing_kind() -> None:
    lanes = [lane(kind="Ship@1", counts={"failed": 3}), lane(kind="Ship@2", counts={"failed": 1})]
    [found, _] = troubles(lanes, (), ())
    assert found.words == "4 actors of type 'Ship' failed, and their messages wait"
    assert (found.about, found.query, found.grave) == (About.ACTORS, "Ship", True)


def test_turns_that_may_hang_are_told_of_by_their_type() -> None:
    def a_turn(kind: str, minute: int) -> Job:
        row = new_row(a_job(kind=kind), 0, 1, AT).job
        return structs.replace(row, started_at=AT + timedelta(minutes=minute))

    turns = [a_turn("Ship@1", 3), a_turn("Ship@2", 1), a_turn("Crane@1", 2)]
    *found, _ = troubles((), (), (), turns=turns)
    assert [(one.words, one.query, one.since) for one in found] == [
        (
            "2 turns of type 'Ship' may hang: no timeout_s ends them, and what is sent to their "
            "actors waits",
            "Ship",
            AT + timedelta(minutes=1),
        ),
        (
            "a turn of type 'Crane' may hang: no timeout_s ends it, and what is sent to its actor "
            "waits",
            "Crane",
            AT + timedelta(minutes=2),
        ),
    ]
    assert all(one.about is About.TURNS and not one.grave for one in found)


def test_a_schedule_that_paused_after_failures() -> None:
    state = ScheduleState(AT, paused_at=AT, note="the last 2 runs failed", failures=2)
    new = NewSchedule(UUID(int=1), "nightly", Timing((Spec(every_s=60.0),)))
    one = Schedule(new=new, state=state, version=1, created_at=AT, look_at=None)
    [found, _] = troubles((), (), (), (), [one])
    assert found.words == "schedule 'nightly' is paused: the last 2 runs failed"
    assert (found.about, found.query, found.since) == (About.SCHEDULES, "nightly", AT)
