"""What becomes of nominal times: missed ones, overlapping ones, paused ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import structs

from longshore.core.schedules import (
    MOST_TIMES,
    backfilled,
    begun,
    decide,
    read_body,
    triggered,
    triggered_id,
)
from longshore.model.job import JobState, Submission
from longshore.model.schedule import (
    Catchup,
    Decision,
    Examined,
    Fate,
    Fire,
    NewSchedule,
    Overlap,
    Rules,
    Schedule,
    Spec,
    Timing,
)
from longshore.model.watcher import ScheduleWatcher

START = datetime(2026, 1, 1, tzinfo=UTC)
ID = UUID(int=7)


def minutes(count: float) -> datetime:
    return START + timedelta(minutes=count)


class Story:
    """A schedule of each minute, as dispatchers and a store move it."""

    def __init__(self, every_s: float = 60, **rules: object) -> None:
        job = Submission(UUID(int=0), "tick", b"\x80")
        timing = Timing((Spec(every_s=every_s),))
        new = NewSchedule(ID, "tick", timing, Rules(**rules), job)  # type: ignore[arg-type]
        state, look_at = begun(new, START)
        self.schedule = Schedule(new=new, state=state, version=1, created_at=START, look_at=look_at)
        self.fires: dict[datetime, Fire] = {}

    def examined(self, minute: float) -> Examined:
        live = tuple(fire for fire in self.fires.values() if not fire.settled)
        return Examined(self.schedule, live, minutes(minute))

    def look(self, minute: float) -> Decision:
        return self.record(decide(self.examined(minute)))

    def record(self, decision: Decision) -> Decision:
        for made in decision.made:
            self.fires[made.fire.nominal_at] = made.fire
        self.schedule = structs.replace(
            self.schedule, state=decision.state, look_at=decision.look_at
        )
        return decision

    def end(self, minute: float, state: JobState = JobState.SUCCEEDED) -> None:
        fire = self.fires[minutes(minute)]
        self.fires[minutes(minute)] = structs.replace(fire, outcome=state, settled=False)

    def fates(self) -> list[tuple[float, Fate, int]]:
        return [
            ((at - START) / timedelta(minutes=1), fire.fate, fire.count)
            for at, fire in sorted(self.fires.items())
        ]


def test_a_due_time_is_submitted_once_and_the_next_look_is_the_next_time() -> None:
    story = Story()
    decision = story.look(1)
    assert story.fates() == [(1, Fate.SUBMITTED, 1)]
    assert decision.look_at == minutes(2)
    assert decide(story.examined(1)).made == ()


def test_what_is_submitted_knows_its_time_and_the_last_success() -> None:
    story = Story()
    story.look(1)
    story.end(1)
    [_, made] = story.look(2).made
    job = read_body(made.body).job
    assert job is not None
    assert job.id == made.fire.subject
    assert job.options.scheduled is not None
    assert job.options.scheduled.nominal_at == minutes(2)
    assert job.options.scheduled.last_success_at == minutes(1)
    assert job.options.watchers == (ScheduleWatcher(ID),)
    assert job.options.labels == ("schedule=tick",)


def test_overlap_skip_skips_until_the_run_has_ended() -> None:
    story = Story()
    for minute in (1, 2, 3):
        story.look(minute)
    story.end(1)
    story.look(4)
    assert [fate for _, fate, _ in story.fates()] == [
        Fate.SUBMITTED,
        Fate.SKIPPED,
        Fate.SKIPPED,
        Fate.SUBMITTED,
    ]
    assert story.fires[minutes(2)].why == (
        "the run of 2026-01-01T00:01:00Z had not ended (overlap skip)"
    )


def test_overlap_queue_one_keeps_one_and_submits_it_when_the_run_has_ended() -> None:
    story = Story(overlap=Overlap.QUEUE_ONE)
    for minute in (1, 2, 3):
        story.look(minute)
    assert [fate for _, fate, _ in story.fates()] == [Fate.SUBMITTED, Fate.QUEUED, Fate.SKIPPED]
    story.end(1)
    story.look(3.5)
    assert story.fires[minutes(2)].fate is Fate.SUBMITTED


def test_overlap_queue_all_submits_one_after_the_other_in_order() -> None:
    story = Story(overlap=Overlap.QUEUE_ALL)
    for minute in (1, 2, 3):
        story.look(minute)
    for minute in (1, 2, 3):
        story.end(minute)
        story.look(3.5)
    assert {fate for _, fate, _ in story.fates()} == {Fate.SUBMITTED}
    assert len(story.fates()) == 3


def test_overlap_allow_submits_all() -> None:
    story = Story(overlap=Overlap.ALLOW)
    for minute in (1, 2, 3):
        story.look(minute)
    assert {fate for _, fate, _ in story.fates()} == {Fate.SUBMITTED}


def test_overlap_cancel_running_cancels_waits_and_then_submits_the_newest() -> None:
    story = Story(overlap=Overlap.CANCEL_RUNNING)
    story.look(1)
    decision = story.look(2)
    assert [fire.nominal_at for fire in decision.cancels] == [minutes(1)]
    assert decision.look_at == minutes(2) + timedelta(seconds=5)
    story.look(3)
    assert story.fires[minutes(2)].why == "the run of 2026-01-01T00:03:00Z replaced it"
    story.end(1, JobState.CANCELLED)
    assert story.look(3.1).cancels == ()
    assert story.fires[minutes(3)].fate is Fate.SUBMITTED


def test_after_a_week_without_a_store_the_latest_time_is_caught_up_and_all_have_a_fate() -> None:
    story = Story()
    week = 7 * 24 * 60
    looks = 0
    while (story.schedule.look_at or START) <= minutes(week + 5):
        decision = story.look(week + 5)
        looks += 1
        assert sum(made.fire.count for made in decision.made) <= MOST_TIMES
    assert looks == 11  # in chunks
    assert sum(count for _, _, count in story.fates()) == week + 5
    counts = dict.fromkeys(Fate, 0)
    for _, fate, count in story.fates():
        counts[fate] += count
    # 86,400 s are caught up, and what is at most 60 s late is not missed.
    assert counts[Fate.EXPIRED] == week + 5 - 1440 - 1
    assert counts[Fate.SUBMITTED] == 1
    assert story.fires[minutes(week + 4)].fate is Fate.SUBMITTED
    assert counts[Fate.SKIPPED] == 1440


def test_catchup_latest_catches_up_one() -> None:
    story = Story(3600, window_s=1e6)
    story.look(150)
    assert story.fates() == [(60, Fate.SKIPPED, 1), (120, Fate.CAUGHT_UP, 1)]


def test_catchup_all_takes_the_newest_of_the_window_one_after_the_other() -> None:
    story = Story(3600, catchup=Catchup.ALL, window_s=4 * 3600, count=3)
    story.look(7 * 60 + 30)
    assert story.fates() == [
        (60, Fate.EXPIRED, 3),
        (240, Fate.SKIPPED, 1),
        (300, Fate.CAUGHT_UP, 1),
        (360, Fate.QUEUED, 1),
        (420, Fate.QUEUED, 1),
    ]
    for minute in (300, 360):
        story.end(minute)
        story.look(7 * 60 + 31)
    assert [fate for _, fate, _ in story.fates()][2:] == [Fate.CAUGHT_UP] * 3


def test_catchup_none_expires_what_was_missed() -> None:
    story = Story(3600, catchup=Catchup.NONE)
    story.look(150)
    assert story.fates() == [(60, Fate.EXPIRED, 2)]


def test_a_paused_schedule_skips_its_times() -> None:
    story = Story()
    state = structs.replace(story.schedule.state, paused_at=START, paused_by="ann")
    story.schedule = structs.replace(story.schedule, state=state)
    story.look(3)
    assert story.fates() == [(1, Fate.SKIPPED, 3)]
    assert story.fires[minutes(1)].why == "the schedule was paused"


def test_failures_in_a_row_pause_it_and_a_success_in_between_does_not() -> None:
    story = Story(pause_after=2)
    ends = [JobState.FAILED, JobState.SUCCEEDED, JobState.FAILED, JobState.FAILED]
    for minute, state in enumerate(ends, 1):
        story.look(minute)
        assert story.schedule.state.paused_at is None
        story.end(minute, state)
    story.look(5)
    assert story.schedule.state.note == "the last 2 runs failed"
    assert story.fires[minutes(5)].fate is Fate.SKIPPED


def test_a_clock_that_goes_back_decides_nothing_again() -> None:
    story = Story(overlap=Overlap.ALLOW)
    story.look(5)
    before = story.fates()
    story.look(2)
    assert story.fates() == before
    assert story.schedule.look_at == minutes(6)


def test_a_trigger_submits_now_whatever_runs() -> None:
    story = Story()
    story.look(1)
    request = UUID(int=99)
    story.record(triggered(story.examined(1.5), request))
    fire = story.fires[minutes(1.5)]
    assert (fire.fate, fire.subject) == (Fate.SUBMITTED, triggered_id(request))


def test_a_backfill_queues_what_submitted_nothing_and_takes_a_span_apart() -> None:
    story = Story(3600, catchup=Catchup.NONE)
    story.look(6 * 60 + 0.5)
    assert story.fates() == [(60, Fate.EXPIRED, 5), (360, Fate.SUBMITTED, 1)]
    story.end(360)
    known = list(story.fires.values())
    story.record(backfilled(story.examined(361), minutes(120), minutes(180), known, 100))
    assert story.fates() == [
        (60, Fate.EXPIRED, 1),
        (120, Fate.QUEUED, 1),
        (180, Fate.QUEUED, 1),
        (240, Fate.EXPIRED, 2),
        (360, Fate.SUBMITTED, 1),
    ]
    story.look(361)
    assert story.fires[minutes(120)].fate is Fate.CAUGHT_UP
