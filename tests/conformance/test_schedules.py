"""Schedules in every store: each nominal time is decided once, whoever looks and whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from msgspec import structs

from longshore.core.schedules import FIRES_KEPT, backfilled, decide, read_body
from longshore.errors import StoreUnavailable
from longshore.model.job import JobState, Refused
from longshore.model.schedule import (
    Decision,
    Examined,
    Fate,
    Fire,
    FireResult,
    Made,
    NewSchedule,
    Overlap,
    Rules,
    Schedule,
    Spec,
    Timing,
)
from longshore.ports import Store
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, done
from longshore.testing.faults import Fault, FaultyStore, scripted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def a_schedule(
    name: str = "tick", every_s: float = 60, app: str = "", **rules: object
) -> NewSchedule:
    timing = Timing((Spec(every_s=every_s),))
    made = Rules(**rules)  # type: ignore[arg-type]
    return NewSchedule(uuid4(), name, timing, made, a_job(), app=app)


async def put(store: Store, new: NewSchedule) -> Schedule:
    made = await store.put_schedule(new)
    assert isinstance(made, Schedule)
    return made


async def examined(store: Store, name: str = "tick") -> Examined:
    found = await store.schedule(name)
    assert found is not None
    return found


async def away(store: Store, times: int = 1, name: str = "tick") -> datetime:
    """A store that nobody asked for long: so many times are not decided."""
    found = await examined(store, name)
    schedule = found.schedule
    every = timedelta(seconds=schedule.new.timing.specs[0].every_s)
    last = EPOCH + (found.now - EPOCH) // every * every
    past = last - (times - 1) * every - timedelta(seconds=1)
    state = structs.replace(schedule.state, decided_to=past)
    decision = Decision(schedule.new.id, schedule.version, state, past)
    assert await store.record_fires([decision]) == [True]
    return past


async def look(store: Store) -> list[Decision]:
    """What a dispatcher decides; only what counts."""
    due = await store.due_schedules()
    decisions = [decide(one) for one in due.examined]
    counts = await store.record_fires(decisions)
    return [one for one, is_made in zip(decisions, counts, strict=True) if is_made]


def subjects(decisions: Sequence[Decision]) -> list[UUID]:
    made = [made.fire for one in decisions for made in one.made]
    return [fire.subject for fire in made if fire.subject is not None]


async def fires(store: Store, most: int = 200) -> list[Fire]:
    return await store.fires((await examined(store)).schedule.new.id, None, most)


# declaring


async def test_a_schedule_is_kept_and_a_repeat_changes_nothing(store: Store) -> None:
    new = a_schedule()
    made = await put(store, new)
    assert (made.new, made.version) == (new, 1)
    assert made.look_at is not None
    assert made.look_at > made.created_at
    again = await put(store, structs.replace(new, id=uuid4()))
    assert again == made
    assert await store.schedules() == [made]
    assert (await examined(store)).schedule == made


async def test_another_of_that_name_is_refused_unless_it_replaces(store: Store) -> None:
    made = await put(store, a_schedule())
    other = a_schedule(every_s=30)
    refused = await store.put_schedule(other)
    assert isinstance(refused, Refused)
    assert "replace" in refused.message
    changed = await store.put_schedule(other, replace=True)
    assert isinstance(changed, Schedule)
    assert (changed.new.id, changed.new.timing) == (made.new.id, other.timing)
    assert changed.version == 2


async def test_an_app_changes_and_removes_only_its_own(store: Store) -> None:
    await put(store, a_schedule("by-hand"))
    await put(store, a_schedule("declared", app="shop"))
    for new in (a_schedule("by-hand", 30, app="shop"), a_schedule("declared", 30)):
        assert isinstance(await store.put_schedule(new, replace=True), Refused)
    assert not await store.remove_schedule("by-hand", "shop")
    assert [one.new.name for one in await store.schedules(app="shop")] == ["declared"]
    assert await store.remove_schedule("declared", "shop")
    assert [one.new.name for one in await store.schedules()] == ["by-hand"]
    assert await store.remove_schedule("by-hand")
    assert not await store.remove_schedule("by-hand")


async def test_lists_go_by_name_in_pages(store: Store) -> None:
    for name in ("b", "a", "C"):
        await put(store, a_schedule(name))
    assert [one.new.name for one in await store.schedules(most=2)] == ["C", "a"]
    assert [one.new.name for one in await store.schedules("a")] == ["b"]


async def test_a_pause_says_since_when_by_whom_and_why(store: Store) -> None:
    await put(store, a_schedule())
    paused = await store.pause_schedule("tick", True, "ann", "holidays")
    assert paused is not None
    assert (paused.state.paused_by, paused.state.note) == ("ann", "holidays")
    assert await store.pause_schedule("tick", True, "bob", "again") == paused
    await away(store, 3)
    await look(store)
    [skipped] = await fires(store)
    assert (skipped.fate, skipped.why) == (Fate.SKIPPED, "the schedule was paused")
    resumed = await store.pause_schedule("tick", False, "ann")
    assert resumed is not None
    assert resumed.state.paused_at is None
    assert await store.pause_schedule("nothing", True, "ann") is None


# deciding


async def test_a_time_is_decided_once_however_many_look(store: Store) -> None:
    await put(store, a_schedule())
    assert (await store.due_schedules()).examined == ()
    await away(store)
    first, second = [[decide(one) for one in (await store.due_schedules()).examined]] * 2
    assert await store.record_fires(first) == [True]
    assert await store.record_fires(second) == [False]
    assert (await store.due_schedules()).examined == ()
    assert [fire.fate for fire in await fires(store)] == [Fate.SUBMITTED]


async def test_the_next_look_is_after_the_next_time(store: Store) -> None:
    await put(store, a_schedule(every_s=3600))
    due = await store.due_schedules()
    assert due.next_s is not None
    assert 0 < due.next_s <= 3600


async def test_what_was_decided_is_pending_until_it_is_submitted(store: Store) -> None:
    await put(store, a_schedule())
    await away(store)
    [decision] = await look(store)
    [pending] = await store.pending_fires(0)
    job = read_body(pending.body).job
    assert job is not None
    assert [job.id] == subjects([decision])
    assert await store.pending_fires(3600) == []
    for _ in range(2):
        await store.fires_submitted([FireResult(pending.schedule, pending.nominal_at)])
        assert await store.pending_fires(0) == []
    [fire] = await fires(store)
    assert (fire.fate, fire.pending, fire.settled) == (Fate.SUBMITTED, False, False)
    assert await store.fire_of(job.id) == fire


async def test_a_refused_submit_is_skipped_and_frees_the_schedule(store: Store) -> None:
    await put(store, a_schedule())
    await away(store)
    await look(store)
    [pending] = await store.pending_fires(0)
    refused = FireResult(pending.schedule, pending.nominal_at, "it was refused: no")
    for _ in range(2):
        await store.fires_submitted([refused])
    [fire] = await fires(store)
    assert (fire.fate, fire.why, fire.subject) == (Fate.SKIPPED, "it was refused: no", None)
    assert (await examined(store)).fires == ()


async def test_the_schedule_hears_how_its_job_ended(scene: Scene) -> None:
    store = scene.store
    await put(store, a_schedule(overlap=Overlap.QUEUE_ONE))
    past = await away(store)
    await look(store)
    [pending] = await store.pending_fires(0)
    job = read_body(pending.body).job
    assert job is not None
    await store.fires_submitted([FireResult(pending.schedule, pending.nominal_at)])
    attempt = await scene.running(job)
    await scene.pump([done(attempt)])
    before = (await examined(store)).schedule
    told = await store.tell_watchers()
    assert told.schedules
    [fire] = (await examined(store)).fires
    assert fire.outcome is JobState.SUCCEEDED
    assert (await examined(store)).schedule.version > before.version
    await look(store)
    [fire] = await fires(store)
    assert fire.settled
    assert (await examined(store)).schedule.state.last_success_at == fire.nominal_at > past


async def test_an_outcome_that_comes_between_a_look_and_its_record_is_not_lost(
    scene: Scene,
) -> None:
    store = scene.store
    await put(store, a_schedule())
    await away(store)
    await look(store)
    [pending] = await store.pending_fires(0)
    job = read_body(pending.body).job
    assert job is not None
    stale = decide(await examined(store))
    await scene.pump([done(await scene.running(job))])
    await store.tell_watchers()
    assert await store.record_fires([stale]) == [False]
    [fire] = (await examined(store)).fires
    assert fire.outcome is JobState.SUCCEEDED


async def test_a_week_away_is_decided_in_chunks_and_every_time_has_one_fate(store: Store) -> None:
    await put(store, a_schedule(every_s=300))
    past = await away(store, 7 * 288)
    while await look(store):
        pass
    found = await fires(store)
    at = past
    for fire in reversed(found):
        assert at < fire.nominal_at <= (fire.last_at or fire.nominal_at)
        at = fire.last_at or fire.nominal_at
    spans = [((fire.last_at or fire.nominal_at) - fire.nominal_at) for fire in found]
    assert [span / timedelta(seconds=300) + 1 for span in spans] == [fire.count for fire in found]
    assert sum(fire.count for fire in found) == 7 * 288
    assert sum(fire.subject is not None for fire in found) == 1


async def test_old_fires_go_and_those_that_are_open_stay(store: Store) -> None:
    await put(store, a_schedule())
    found = await examined(store)
    open = Fire(nominal_at=datetime(2000, 1, 1, tzinfo=UTC), fate=Fate.QUEUED)
    decision = backfilled(found, found.now, found.now, [], 0)
    settled = [
        Fire(nominal_at=open.nominal_at + timedelta(days=day), fate=Fate.EXPIRED, settled=True)
        for day in range(1, FIRES_KEPT + 11)
    ]
    rows = [structs.replace(decision, made=tuple(Made(fire) for fire in (open, *settled)))]
    assert await store.record_fires(rows) == [True]
    kept = await fires(store)
    assert len(kept) == FIRES_KEPT + 1
    assert kept[-1] == open
    assert kept[0].nominal_at == settled[-1].nominal_at
    span = await store.fires_between(
        found.schedule.new.id, settled[50].nominal_at, settled[52].nominal_at
    )
    assert span == settled[50:53]


# whatever dies


async def test_a_lost_answer_at_any_step_submits_once(scene: Scene) -> None:
    for verb in ("due_schedules", "record_fires", "fires_submitted"):
        for fault in Fault:
            name = f"{verb}-{fault.value}"
            await put(scene.store, a_schedule(name))
            await away(scene.store, 1, name)
            faulty = FaultyStore(scene.store, scripted((verb, fault)))
            submitted: list[UUID] = []
            for _ in range(3):
                try:
                    await look(faulty)
                    for pending in await faulty.pending_fires(0):
                        job = read_body(pending.body).job
                        assert job is not None
                        submitted.append(job.id)
                        await faulty.fires_submitted(
                            [FireResult(pending.schedule, pending.nominal_at)]
                        )
                except StoreUnavailable:
                    continue
            id = (await examined(scene.store, name)).schedule.new.id
            [fire] = await scene.store.fires(id)
            assert (fire.fate, fire.pending) == (Fate.SUBMITTED, False), name
            assert set(submitted) == {fire.subject}, name


async def test_dispatchers_that_fire_at_once_fire_each_time_once(
    backend: Backend, store: Store
) -> None:
    for n in range(20):
        await put(store, a_schedule(f"many-{n}"))
        await away(store, 1, f"many-{n}")
    async with backend.opened() as other, backend.opened() as third:
        stores = [store, other, third]
        made = await asyncio.gather(*(look(one) for one in stores for _ in range(3)))
    assert sum(map(len, made)) == 20
    ids = [id for one in made for id in subjects(one)]
    assert len(ids) == len(set(ids)) == 20
    assert len(await store.pending_fires(0)) == 20
