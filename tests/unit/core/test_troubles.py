"""What the overview says is wrong."""

from __future__ import annotations

from datetime import UTC, datetime

from longshore.core.blocking import Cause, lane_views
from longshore.core.lanes import lane_of
from longshore.core.troubles import About, SeenDispatcher, troubles
from longshore.model.depth import LaneDepth, LaneView
from longshore.model.job import JobState

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
