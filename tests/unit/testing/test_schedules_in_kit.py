"""Schedules in the test kit: declared in code, synced, fired by the clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from longshore import App, Context, Scheduled
from longshore.errors import AppError, Conflict
from longshore.model.schedule import Fate, NewSchedule, Rules, Spec, Timing
from longshore.testing import run_inline

SEEN: list[Scheduled | None] = []


def shop(*, extra: bool = True) -> App:
    app = App("shop")

    @app.schedule(every=timedelta(minutes=10), args={"n": 3})
    @app.job
    def report(ctx: Context, n: int) -> int:
        SEEN.append(ctx.scheduled)
        if n < 0:
            raise ValueError(n)
        return n

    if extra:
        app.schedule(name="second", every=3600, args={"n": 1})(report)
    return app


def test_a_declared_schedule_fires_when_its_time_has_come_and_its_job_knows_which() -> None:
    app = shop(extra=False)
    SEEN.clear()
    with run_inline(app) as kit:
        assert app.sync_schedules().added == ("report",)
        assert app.sync_schedules().unchanged == 1
        assert kit.drain() == 0
        kit.advance(600)
        assert kit.drain() == 1
        kit.advance(600)
        assert kit.drain() == 1
    first, second = SEEN
    assert first is not None
    assert second is not None
    assert (first.schedule, first.last_success_at) == ("report", None)
    assert second.nominal_at == first.nominal_at + timedelta(minutes=10)
    assert second.last_success_at == first.nominal_at


async def test_a_sync_removes_what_the_app_no_longer_declares_and_nothing_else() -> None:
    app = shop()
    with run_inline(app):
        await app.sync_schedules_async()
        connection = app._access.connection()
        job = app.schedules[0].job
        by_hand = NewSchedule(
            app._new_id(), "by-hand", Timing((Spec(cron="0 2 * * *"),)), Rules(), job
        )
        await connection.schedules.put(by_hand)
        less = app.schedules[:1]
        assert (await connection.schedules.sync("shop", less)).removed == ("second",)
        names = [one.new.name for one in await connection.schedules.list()]
        assert names == ["by-hand", "report"]
        taken = NewSchedule(app._new_id(), "by-hand", by_hand.timing, Rules(), job)
        with pytest.raises(Conflict, match="was made by hand"):
            await connection.schedules.sync("shop", [taken])


async def test_a_trigger_a_backfill_and_a_pause() -> None:
    app = shop(extra=False)
    SEEN.clear()
    with run_inline(app) as kit:
        await app.sync_schedules_async()
        schedules = app._access.connection().schedules
        fire = await schedules.trigger("report")
        assert await kit.drain_async() == 1
        last = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
        queued = await schedules.backfill("report", last - timedelta(minutes=10), last)
        assert [one.fate for one in queued] == [Fate.QUEUED] * 2
        assert await kit.drain_async() == 2
        assert await schedules.backfill("report", last - timedelta(minutes=10), last) == ()
        paused = await schedules.pause("report", True, "a holiday")
        assert paused.state.note == "a holiday"
        kit.advance(600)
        assert await kit.drain_async() == 0
        view = await schedules.show("report")
        assert view.text.startswith("paused since")
        assert "by local: a holiday" in view.text
        assert [one.fate for one in view.fires][:2] == [Fate.SKIPPED, Fate.SUBMITTED]
        assert view.fires[1].subject == fire.subject
        await schedules.pause("report", False)
        kit.advance(600)
        assert await kit.drain_async() == 1
    assert len(SEEN) == 4


async def test_a_group_is_submitted_whole_for_each_time() -> None:
    app = App("etl")

    @app.job
    def extract() -> int:
        return 20

    @app.job
    def load(n: int) -> int:
        return n + 1

    group = app.group("nightly")
    rows = group.add(extract.call())
    group.add(load.call(rows.result))
    app.schedule(every=60)(group)
    with run_inline(app) as kit:
        await app.sync_schedules_async()
        for _ in range(2):
            kit.advance(60)
            assert await kit.drain_async() == 2
        view = await app._access.connection().schedules.show("nightly")
        assert [one.is_group for one in view.fires] == [True, True]
        assert view.fires[1].outcome == "succeeded"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cron": "0 2 * *"}, "is no cron expression"),
        ({"cron": "0 2 * * *", "tz": "Vienna"}, "is no time zone"),
        ({}, "0 specs"),
        ({"every": 0.1}, "every is 0.1"),
        ({"every": 60, "overlap": "never"}, "overlap"),
        ({"every": 60, "starts_at": datetime(2026, 1, 1)}, "no time zone"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_where_it_is_declared(
    given: dict[str, object], words: str
) -> None:
    app = App("shop")

    @app.job
    def report() -> None: ...

    with pytest.raises((AppError, ValueError), match=words):
        app.schedule(**given)(report)  # type: ignore[arg-type]


def test_a_schedule_goes_above_the_job() -> None:
    app = App("shop")
    with pytest.raises(AppError, match="put it above @app"):

        @app.schedule(every=60)
        def report() -> None: ...
