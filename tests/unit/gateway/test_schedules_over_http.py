"""Schedules over HTTP."""

from __future__ import annotations

from .api import Api

ALL = "/dispatcher/schedules/"
ADD = {"kind": "add", "args": {"a": 1, "b": 2}}


async def test_a_schedule_is_made_shown_changed_and_removed(api: Api) -> None:
    body = {"name": "nightly", "cron": "30 2 * * *", "tz": "Europe/Vienna", "job": ADD}
    made = await api.post(ALL, body)
    assert (made.status, made.json["specs"]) == (
        201,
        [{"cron": "30 2 * * *", "tz": "Europe/Vienna"}],
    )
    assert (await api.post(ALL, {**body, "tz": "UTC"})).status == 409
    changed = await api.post(f"{ALL}?replace=true", {**body, "tz": "UTC"})
    assert (changed.status, changed.json["id"]) == (200, made.json["id"])
    [listed] = (await api.get(ALL)).json["schedules"]
    assert listed == changed.json
    times = (await api.get(f"{ALL}nightly/preview?count=2")).json["times"]
    assert [one["local"][10:] for one in times] == ["T02:30:00+00:00"] * 2
    assert (await api.call("DELETE", f"{ALL}nightly")).json == {"name": "nightly", "removed": True}
    assert (await api.call("DELETE", f"{ALL}nightly")).status == 404
    assert (await api.get(f"{ALL}nightly")).status == 404


async def test_a_schedule_is_paused_triggered_and_backfilled(api: Api) -> None:
    await api.post(ALL, {"name": "often", "every_s": 3600, "job": ADD})
    paused = await api.post(f"{ALL}often/pause", {"note": "holidays"})
    assert (paused.json["paused"], paused.json["note"]) == (True, "holidays")
    assert (await api.get(f"{ALL}often")).json["why"].endswith("by local: holidays")
    assert not (await api.post(f"{ALL}often/resume")).json["paused"]
    fire = (await api.post(f"{ALL}often/trigger")).json
    assert (await api.get(f"/dispatcher/jobs/{fire['job']}")).json["kind"] == "add"
    span = {"first": "2026-01-01T00:00:00Z", "last": "2026-01-01T02:00:00Z"}
    plan = (await api.post(f"{ALL}often/backfill", {**span, "dry_run": True})).json["fires"]
    assert len((await api.get(f"{ALL}often")).json["fires"]) == 1, "a plan changes nothing"
    made = (await api.post(f"{ALL}often/backfill", span)).json["fires"]
    assert [one["nominal_at"] for one in plan] == [one["nominal_at"] for one in made]
    assert [one["nominal_at"][11:19] for one in made] == ["00:00:00", "01:00:00", "02:00:00"]
    assert await api.kit.drain_async() == 4
    fates = [one["fate"] for one in (await api.get(f"{ALL}often")).json["fires"]]
    assert fates == ["submitted", "caught_up", "caught_up", "caught_up"]


async def test_the_job_of_a_schedule_has_limits(api: Api) -> None:
    limits = [{"key": "a", "concurrency": 1}]
    body = {"name": "often", "every_s": 60, "job": {**ADD, "limit": limits, "fair_by": "b"}}
    assert (await api.post(ALL, body)).status == 201
    fire = (await api.post(f"{ALL}often/trigger")).json
    job = (await api.get(f"/dispatcher/jobs/{fire['job']}")).json
    assert ([one["key"] for one in job["limits"]], job["fair"]) == (["a=1"], "b=2")
    close = {"kind": "close_day", "args": {"date": "monday"}}
    refused = await api.post(ALL, {"name": "close", "every_s": 60, "job": close})
    assert (refused.status, "a submit by name cannot call it" in refused.json["detail"]) == (
        400,
        True,
    )


async def test_what_cannot_be_a_schedule_is_refused(api: Api) -> None:
    for wrong in (
        {"name": "x", "job": ADD},
        {"name": "x", "cron": "0 2 * *", "job": ADD},
        {"name": "x", "every_s": 60},
        {"name": "x", "every_s": 60, "job": {"args": {}}},
        {"name": "x", "every_s": 60, "job": {"kind": "add", "args": {"a": "no"}}},
        {"name": "no name", "every_s": 60, "job": ADD},
        {"name": "x", "every_s": 60, "job": ADD, "unknown": 1},
    ):
        assert (await api.post(ALL, wrong)).status == 400, wrong
