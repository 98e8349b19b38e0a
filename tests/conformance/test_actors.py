"""Actors and their turns: one at a time, each recorded once, whatever dies."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.lifecycle import TERMINAL
from longshore.core.turns import turn_kind, turn_of
from longshore.errors import Conflict, InvalidInput, StoreUnavailable
from longshore.model.actor import (
    TURNS_KEPT,
    ActorFilter,
    ActorPage,
    ActorStatus,
    ActorTerms,
    ActorVerdict,
    Started,
    Timer,
    Turn,
)
from longshore.model.ends import Failed, NotBegun, Released, Retried, TurnTaken
from longshore.model.ids import derive_id
from longshore.model.job import JobFilter, JobState, Options, Refused, Verdict
from longshore.model.reports import OutboxJob
from longshore.model.retention import Retention
from longshore.model.worker import Attended
from longshore.testing.actor_builders import (
    KEY,
    TYPE,
    ActorScene,
    a_message,
    an_actor,
    given,
    names,
    taken,
)
from longshore.testing.backends import Backend
from longshore.testing.builders import Scene, a_job, a_worker, done, new_id
from longshore.testing.faults import Fault, FaultyStore, scripted


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


# starting


async def test_started_actor_is_there_and_its_first_turn_is_ready(actors: ActorScene) -> None:
    terms = ActorTerms(priority=3, options=Options(timeout_s=5.0))
    new = an_actor(state=b"\x07", terms=terms)
    await actors.start(new)
    actor = await actors.actor()
    assert (actor.id, actor.type, actor.key, actor.terms) == (new.id, TYPE, KEY, terms)
    assert (actor.turn, actor.state, actor.version, actor.status) == (0, b"\x07", 1, "ready")
    assert (actor.turned_at, actor.worker, actor.error, actor.next_at) == (None,) * 4
    assert actor.job == derive_id(new.id, 1)
    job = await actors.scene.job(actor.job)
    assert (job.kind, job.state, job.priority) == ("counter@1", JobState.READY, 3)
    assert job.options == Options(timeout_s=5.0, turn=True)
    assert turn_of(job.args) == (new.id, 1)


async def test_first_turn_begins_with_the_start(actors: ActorScene) -> None:
    new = an_actor(state=b"\x07")
    await actors.start(new)
    await actors.send(a_message("add", args=b"\x01"))
    attempt = await actors.turn()
    got = given(attempt)
    assert (got.actor, got.type, got.key, got.turn) == (new.id, TYPE, KEY, 1)
    assert (got.state, got.version, got.last_worker) == (b"\x07", 1, None)
    assert names(attempt) == ["start", "add"]
    await actors.take(attempt)
    await actors.send(a_message("more"))
    assert names(await actors.turn()) == ["more"]


async def test_repeat_of_a_start_changes_nothing(actors: ActorScene) -> None:
    new = an_actor()
    await actors.sleeping(new)
    assert await actors.store.start_actors([new]) == [Started(new.id)]
    assert (await actors.actor()).turn == 1
    assert await actors.claim() == []


async def test_key_that_is_taken_is_refused_or_reused(actors: ActorScene) -> None:
    first = an_actor()
    await actors.start(first)
    second, other = an_actor(), an_actor("b")
    [refused, started] = await actors.store.start_actors([second, other])
    assert isinstance(refused, Refused)
    assert (refused.id, refused.code) == (second.id, Conflict.code)
    assert started == Started(other.id)
    reused = await actors.store.start_actors([second], reuse=True)
    assert reused == [Started(first.id, existing=True)]


async def test_same_key_twice_in_one_start_is_one_actor(actors: ActorScene) -> None:
    first, second = an_actor(), an_actor()
    answers = await actors.store.start_actors([first, second], reuse=True)
    assert answers == [Started(first.id), Started(first.id, existing=True)]
    assert len(await actors.claim()) == 1


async def test_id_of_another_actor_is_refused(actors: ActorScene) -> None:
    first = an_actor()
    await actors.start(first)
    [refused] = await actors.store.start_actors([an_actor("b", id=first.id)])
    assert isinstance(refused, Refused)
    assert refused.code == Conflict.code
    assert await actors.store.actor(TYPE, "b") is None


async def test_actor_that_no_database_can_store_is_refused(actors: ActorScene) -> None:
    wrong = [an_actor("a\0b"), an_actor("b", terms=ActorTerms(priority=10**6))]
    answers = await actors.store.start_actors([*wrong, an_actor("c")])
    refused = [one for one in answers if isinstance(one, Refused)]
    assert [one.code for one in refused] == [InvalidInput.code] * 2
    assert [one.key for one in (await actors.store.actors(ActorFilter())).actors] == ["c"]


async def test_many_actors_are_started_at_once(actors: ActorScene) -> None:
    many = [an_actor(f"k{n:04}") for n in range(1_100)]
    await actors.start(*many)
    listed = (await actors.store.actors(ActorFilter(limit=2_000))).actors
    assert [one.key for one in listed] == [one.key for one in many]
    assert len(await actors.claim(most=1_100)) == 1_100


# turns


async def test_turn_leaves_its_state_and_its_job_is_gone(actors: ActorScene) -> None:
    new = an_actor()
    await actors.start(new)
    attempt = await actors.turn()
    assert await actors.status() == ActorStatus.RUNNING
    pumped = await actors.pump(taken(attempt, state=b"\x05", version=2))
    [answer] = pumped.finished
    assert (answer.verdict, answer.state) == (Verdict.RECORDED, JobState.SUCCEEDED)
    assert [(one.id, one.state) for one in pumped.ended] == [(attempt.id, JobState.SUCCEEDED)]
    assert await actors.store.job(attempt.id) is None
    actor = await actors.actor()
    assert (actor.turn, actor.state, actor.version) == (1, b"\x05", 2)
    assert (actor.status, actor.job, actor.worker) == ("sleeping", None, attempt.worker)
    assert actor.turned_at is not None


async def test_next_turn_knows_who_took_the_last(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message())
    assert given(await actors.turn()).last_worker == actors.slot.worker


async def test_version_of_the_state_is_in_the_kind_of_the_next_turn(actors: ActorScene) -> None:
    await actors.start(an_actor())
    await actors.pump(taken(await actors.turn(), version=2))
    await actors.send(a_message())
    assert await actors.claim(version=1) == []
    attempt = await actors.turn(version=2)
    assert (attempt.kind, given(attempt).version) == (turn_kind(TYPE, 2), 2)


async def test_an_actor_has_one_turn_at_a_time(actors: ActorScene) -> None:
    await actors.start(an_actor())
    for n in range(5):
        await actors.send(a_message(f"m{n}"), a_message(f"n{n}"))
    assert len(await actors.claim()) == 1
    await actors.send(a_message("late"))
    assert await actors.claim() == []


async def test_turns_of_many_actors_are_taken_in_one_batch(actors: ActorScene) -> None:
    keys = [f"k{n}" for n in range(40)]
    await actors.start(*map(an_actor, keys))
    attempts = await actors.claim(most=40)
    sends = [a_message("hello", key) for key in keys]
    pumped = await actors.pump(*(taken(one, state=one.id.bytes) for one in attempts), sends=sends)
    assert {one.verdict for one in pumped.finished} == {Verdict.RECORDED}
    assert sum(pumped.ready.values()) == 40
    again = await actors.claim(most=99)
    assert [names(one) for one in again] == [["hello"]] * 40
    states = {given(one).state for one in again}
    assert states == {one.id.bytes for one in attempts}


async def test_late_turn_of_a_lost_worker_changes_nothing(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    attempt = await actors.turn()
    slot = actors.slot
    await actors.store.harvest(slot.worker, slot.session, "lost", crash=True, crash_limit=5)
    other = await ActorScene.begin(actors.scene)
    late = taken(attempt, state=b"\x66", outbox=[a_message("never")], timers=())
    [answer] = (await actors.pump(late)).finished
    assert answer.verdict is Verdict.STALE
    actor = await actors.actor()
    assert (actor.turn, actor.state, actor.status) == (1, b"\x01", "ready")
    assert await actors.mail_names() == ["one", "two"]
    second = await other.turn()
    assert names(second) == ["one"]
    await other.take(second)
    assert names(await other.turn()) == ["two"]


async def test_turn_of_a_worker_that_said_goodbye_runs_again_with_all_its_mail(
    actors: ActorScene,
) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    await actors.turn()
    slot = actors.slot
    await actors.store.harvest(slot.worker, slot.session, "goodbye", crash=False, crash_limit=5)
    other = await ActorScene.begin(actors.scene)
    assert names(await other.turn()) == ["one", "two"]


async def test_turn_under_a_wrong_owner_number_or_actor_is_stale(actors: ActorScene) -> None:
    await actors.start(an_actor())
    end = taken(await actors.turn())
    wrong = [
        structs.replace(end, worker=new_id()),
        structs.replace(end, token=end.token + 1000),
        structs.replace(end, number=2),
        structs.replace(end, actor=new_id()),
    ]
    for one in wrong:
        [answer] = (await actors.pump(one)).finished
        assert answer.verdict is Verdict.STALE
    assert (await actors.actor()).turn == 0
    [answer] = (await actors.pump(end)).finished
    assert answer.verdict is Verdict.RECORDED


async def test_ordinary_job_cannot_end_as_a_turn(actors: ActorScene) -> None:
    attempt = await actors.scene.running(slot=actors.slot)
    turn = Turn(b"", 1, 0)
    end = TurnTaken(attempt.id, attempt.token, actor=new_id(), number=1, turn=turn)
    [answer] = (await actors.pump(end)).finished
    assert answer.verdict is Verdict.STALE
    assert await actors.scene.state(attempt.id) is JobState.RUNNING


async def test_no_number_of_a_turn_holds_up_the_batch(actors: ActorScene) -> None:
    """No worker can make a batch fail, whatever it says of its turn."""
    await actors.sleeping(an_actor(), an_actor("b"))
    await actors.send(a_message(), a_message(key="b"))
    odd, sound = await actors.claim()
    end = taken(odd)
    wrong = structs.replace(
        end.turn,
        version=2**64 - 1,
        read=2**64 - 1,
        read_delayed=(2**63, -(2**63) - 1),
        timers=(Timer("never", at=2**64 - 1),),
    )
    beyond = structs.replace(end, number=2**64)
    pumped = await actors.pump(beyond, structs.replace(end, turn=wrong), taken(sound))
    assert [one.verdict for one in pumped.finished] == ["stale", "recorded", "recorded"]
    assert [(await actors.actor(key)).turn for key in "ab"] == [2, 2]


async def test_same_turn_twice_in_one_batch_counts_once(actors: ActorScene) -> None:
    await actors.start(an_actor())
    end = taken(await actors.turn(), outbox=[a_message("self")])
    first, second = (await actors.pump(end, end)).finished
    assert (first.verdict, second.verdict) == (Verdict.RECORDED, Verdict.STALE)
    assert (await actors.actor()).turn == 1
    assert await actors.mail_names() == ["self"]


async def test_turn_whose_answer_was_lost_is_repeated_and_nothing_happens_twice(
    actors: ActorScene,
) -> None:
    await actors.sleeping(an_actor(), an_actor("b"))
    await actors.send(a_message())
    outbox = a_message("hello", "b"), OutboxJob(a_job())
    end = taken(await actors.turn(), state=b"\x09", outbox=outbox)
    faulty = FaultyStore(actors.store, scripted(("pump", Fault.BEFORE), ("pump", Fault.AFTER)))
    mine = ActorScene(Scene(faulty, actors.scene.dispatcher), actors.slot)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await mine.pump(end)
    [answer] = (await mine.pump(end)).finished
    assert answer.verdict is Verdict.STALE
    actor = await actors.actor()
    assert (actor.turn, actor.state) == (2, b"\x09")
    assert await actors.mail_names("b") == ["hello"]
    work = await actors.store.jobs(JobFilter(kind="work"))
    assert len(work.jobs) == 1


async def test_claim_of_a_turn_whose_answer_was_lost_is_found_with_its_events(
    actors: ActorScene,
) -> None:
    await actors.start(an_actor())
    await actors.send(a_message("one"))
    faulty = FaultyStore(actors.store, scripted(("pump", Fault.AFTER)))
    with pytest.raises(StoreUnavailable):
        await ActorScene(Scene(faulty, actors.scene.dispatcher), actors.slot).turn()
    await actors.send(a_message("two"))
    [attempt] = await actors.store.placed([actors.slot])
    assert names(attempt) == ["start", "one", "two"]
    await actors.take(attempt)
    assert (await actors.actor()).unread == 0


async def test_adopted_worker_gets_its_turn_with_its_events(scene: Scene) -> None:
    info = a_worker(kinds=["counter@1"])
    actors = ActorScene(scene, await scene.attend(info))
    await actors.start(an_actor())
    attempt = await actors.turn()
    answer = await scene.store.attend(new_id(), info)
    assert isinstance(answer, Attended)
    [placed] = answer.placed
    assert (placed.id, names(placed)) == (attempt.id, ["start"])


# failures


async def test_failed_turn_keeps_state_and_mail_and_is_retried_with_one_event(
    actors: ActorScene,
) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    attempt = await actors.turn()
    assert names(attempt) == ["one", "two"]
    await actors.pump(done(attempt, Retried, delay_s=0))
    await actors.store.promote()
    second = await actors.turn()
    assert (second.id, names(second), given(second).state) == (attempt.id, ["one"], b"\x01")
    await actors.take(second)
    assert names(await actors.turn()) == ["two"]


async def test_turn_that_backs_off_is_left_alone_by_new_mail(
    actors: ActorScene, backend: Backend
) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    await actors.pump(done(await actors.turn(), Retried, delay_s=60))
    await actors.send(a_message("two"))
    assert await actors.claim() == []
    await backend.pass_time(61)
    await actors.store.promote()
    assert names(await actors.turn()) == ["one"]


async def test_turn_that_failed_for_good_is_kept_until_the_actor_is_resumed(
    actors: ActorScene,
) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    attempt = await actors.turn()
    await actors.pump(done(attempt, Failed))
    actor = await actors.actor()
    assert (actor.status, actor.state, actor.unread) == (ActorStatus.FAILED, b"\x01", 2)
    assert actor.error is not None
    assert actor.error.message == "it did not work"
    await actors.send(a_message("three"))
    assert await actors.claim() == []
    assert await actors.store.pause_actor(TYPE, KEY, False) is ActorVerdict.DONE
    again = await actors.turn()
    assert (again.id, names(again)) == (attempt.id, ["one", "two", "three"])
    await actors.take(again)
    assert await actors.status() == ActorStatus.SLEEPING


async def test_cancelled_turn_has_failed(actors: ActorScene) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"))
    job = (await actors.actor()).job
    assert job is not None
    await actors.store.cancel([job])
    assert await actors.status() == ActorStatus.FAILED
    assert await actors.store.pause_actor(TYPE, KEY, False) is ActorVerdict.DONE
    assert names(await actors.turn()) == ["one"]


@pytest.mark.parametrize("how", [Released, NotBegun])
async def test_turn_that_is_handed_back_runs_with_all_its_mail(
    actors: ActorScene, how: type[Released | NotBegun]
) -> None:
    await actors.sleeping()
    await actors.send(a_message("one"), a_message("two"))
    await actors.pump(done(await actors.turn(), how))
    assert names(await actors.turn()) == ["one", "two"]


async def test_prune_leaves_failed_turns_alone(actors: ActorScene, backend: Backend) -> None:
    await actors.sleeping()
    await actors.send(a_message())
    attempt = await actors.turn()
    await actors.pump(done(attempt, Failed))
    other = await actors.scene.ended(Failed)
    await backend.pass_time(1000)
    await actors.store.prune(Retention(dict.fromkeys(TERMINAL, 1.0)))
    assert await actors.store.job(other.id) is None
    assert await actors.scene.state(attempt.id) is JobState.FAILED
    assert await actors.store.pause_actor(TYPE, KEY, False) is ActorVerdict.DONE
    assert names(await actors.turn()) == ["add"]


# reading


async def test_last_turns_are_kept(actors: ActorScene) -> None:
    await actors.start(an_actor())
    for n in range(1, 26):
        await actors.take(await actors.turn(), state=bytes([n]))
        await actors.send(a_message())
    turns = await actors.store.turns(TYPE, KEY)
    assert [one.turn for one in turns] == [*range(25, 25 - TURNS_KEPT, -1)]
    assert [one.state for one in turns] == [bytes([one.turn]) for one in turns]
    assert [one.read for one in turns] == [one.turn - 1 for one in turns]
    assert {one.worker for one in turns} == {actors.slot.worker}


async def test_first_turns_begin_with_what_the_actor_was_started_with(actors: ActorScene) -> None:
    await actors.sleeping(an_actor(state=b"\x07"))
    assert [(one.turn, one.state) for one in await actors.store.turns(TYPE, KEY)] == [
        (1, b"\x01"),
        (0, b"\x07"),
    ]


async def test_actors_are_listed_by_type_and_key_without_states(scene: Scene) -> None:
    actors = await ActorScene.begin(scene, "x", "y")
    await actors.start(*(an_actor(key, type=type) for type in "yx" for key in "ba"))
    await actors.take(await actors.turn("x"))
    listed = (await actors.store.actors(ActorFilter())).actors
    assert [(one.type, one.key) for one in listed] == [*zip("xxyy", "abab", strict=True)]
    assert {one.state for one in listed} == {b""}
    page = (await actors.store.actors(ActorFilter(after=("x", "a"), limit=2))).actors
    assert [(one.type, one.key) for one in page] == [("x", "b"), ("y", "a")]
    of_type = (await actors.store.actors(ActorFilter(type="y"))).actors
    assert [one.key for one in of_type] == ["a", "b"]
    asleep = (await actors.store.actors(ActorFilter(status=ActorStatus.SLEEPING))).actors
    assert [(one.type, one.key, one.turn) for one in asleep] == [("x", "b", 1)]


async def test_nobody_is_nobody(actors: ActorScene) -> None:
    assert await actors.store.actor(TYPE, "nobody") is None
    assert await actors.store.turns(TYPE, "nobody") == []
    assert await actors.store.mail(TYPE, "nobody") == []
    assert await actors.store.actors(ActorFilter()) == ActorPage()


# jobs


async def test_jobs_of_a_turn_are_accepted_with_it(actors: ActorScene) -> None:
    await actors.start(an_actor())
    job = a_job()
    pumped = await actors.pump(taken(await actors.turn(), outbox=[OutboxJob(job)]))
    assert sum(pumped.ready_by_ends.values()) == 1
    assert await actors.scene.state(job.id) is JobState.READY
    assert [one.id for one in await actors.scene.claim(actors.slot)] == [job.id]


async def test_job_of_a_turn_that_is_refused_comes_back(actors: ActorScene) -> None:
    await actors.start(an_actor())
    job = a_job(args=b"\x81\xa1a\x01")
    await actors.scene.accepted(structs.replace(job, args=b"\x80"))
    await actors.take(await actors.turn(), outbox=[OutboxJob(job)])
    [event] = given(await actors.turn()).events
    assert (event.name, event.id) == ("undelivered", job.id)
