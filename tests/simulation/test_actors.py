"""Actors in storms: their messages are applied in order, each exactly once, and none is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec import structs

from longshore.core.lifecycle import OWNED
from longshore.model.actor import (
    ActorTerms,
    ActorVerdict,
    MailAction,
    Message,
    NewActor,
    Sent,
    Started,
)
from longshore.model.attempt import Attempt
from longshore.model.callback import USUAL_TERMS, CallbackTerms
from longshore.model.ends import End, TurnTaken
from longshore.model.job import Ended, Finished, Options, Refused, RetryPolicy
from longshore.ports import Told
from longshore.testing.builders import new_id
from longshore.testing.memory import MemoryStore
from longshore.testing.memory_rows import ActorRow, JobRow
from longshore.testing.simulation.actor_plans import (
    ActorPlans,
    Control,
    ControlPlan,
    Deed,
    Fate,
    Order,
    StartPlan,
    Temper,
    content_of,
)
from longshore.testing.simulation.faults import Kill, Outage, Theme
from longshore.testing.simulation.promises import Promise
from longshore.testing.simulation.run import is_for_sqlite, simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import Scenario, WorkerPlan, make_actors

from .telling import assert_kept
from .test_guards import hunt


@pytest.mark.parametrize("first", range(1, 21, 5))
def test_every_promise_is_kept_of_actors(first: int) -> None:
    """G1, G2, G3, G6, G7, G8."""
    for seed in range(first, first + 5):
        run = simulate_on_sqlite if is_for_sqlite(seed) else simulate
        assert_kept(run(make_actors(seed)), "actors")


def test_storms_hold_everything_that_can_happen_to_actors() -> None:
    """Otherwise the checks would look at nothing."""
    plans = [make_actors(seed).actors for seed in range(1, 21)]
    fates = {fate for plan in plans for one in plan.tempers.values() for fate in one.fates}
    assert {None, *Fate} == fates
    assert {one.control for plan in plans for one in plan.controls} == set(Control)
    sends = [
        one for plan in plans for stream in plan.streams for _, some in stream.sends for one in some
    ]
    assert any(one.delay_s is not None for one in sends)
    assert any(one.reply_to is not None for one in sends)
    orders = [order for one in sends for order in content_of(one.args).orders]
    assert {order.deed for order in _with_inner(orders)} == set(Deed)
    assert any(len(plan.starts) > len(plan.names) for plan in plans)


def _with_inner(orders: list[Order]) -> list[Order]:
    return [one for order in orders for one in (order, *_with_inner(list(order.orders)))]


# without what keeps the messages


class ReadsAll(MemoryStore):
    """Takes all mail as read when a turn ends, also what came after it was given out."""

    def _take_turn(self, row: JobRow, end: TurnTaken) -> None:
        turn = structs.replace(end.turn, read=2**62)
        super()._take_turn(row, structs.replace(end, turn=turn))


def test_mail_that_is_not_kept_from_a_turn_that_runs_gets_lost() -> None:
    """G7."""
    assert hunt(10, ReadsAll, make=make_actors).promise is Promise.ACTORS


class WakesNobody(MemoryStore):
    """Puts messages from outside into mailboxes, and leaves their actors asleep."""

    def _take_in(self, message: Message, most: int) -> Sent | Refused:
        before = set(self._touched)
        answer = super()._take_in(message, most)
        self._touched = before
        return answer


def test_a_message_that_does_not_wake_its_actor_is_noticed() -> None:
    """G7."""
    assert hunt(5, WakesNobody, make=make_actors).promise is Promise.ACTORS


class NotesNoEnd(MemoryStore):
    """Ends watched jobs without a notice for those who watch them."""

    def _note_watched(self, row: JobRow) -> None:
        pass


def test_a_watched_end_that_is_not_noted_is_noticed() -> None:
    """G7."""
    assert hunt(20, NotesNoEnd, make=make_actors).promise is Promise.ACTORS


class TellsTwice(MemoryStore):
    """Keeps the notices that it has delivered."""

    async def tell_watchers(self, most: int = 100, callbacks: CallbackTerms = USUAL_TERMS) -> Told:
        kept = [*self._notices]
        told = await super().tell_watchers(most, callbacks)
        self._notices = kept
        return told


def test_an_end_that_is_told_twice_is_noticed() -> None:
    """G7."""
    assert hunt(20, TellsTwice, make=make_actors).promise is Promise.ACTORS


def one_late_turn(seed: int, theme: Theme | None = None) -> Scenario:
    """A dispatcher commits a turn only when its worker was declared lost, and another has it."""
    scenario = make_actors(seed, theme)
    first = scenario.actors.starts[0]
    actor = structs.replace(first.actor, type="diary", terms=ActorTerms())
    start = StartPlan("c1", 9.0, actor, first.reuse)
    temper = Temper((None, Fate.HANGS), takes_s=4.0)
    return structs.replace(
        scenario,
        dispatchers=("d1", "d2"),
        workers=tuple(WorkerPlan(f"w{n}", 1, 1, ("diary@1",), (f"d{n}",)) for n in (1, 2)),
        plain_workers=(),
        clients=("c1",),
        jobs=(),
        actors=ActorPlans((start,), tempers={actor.key: temper}, keepers={actor.key: "c1"}),
        faults=(
            Kill(1.0, "w2", 0, 14.0, True),
            Outage(10.2, ("d1",), 5.0, 40.0),
            Kill(13.5, "w1", 0, 60.0, True),
        ),
        storm_s=65.0,
        store_delay_s=(0.0002, 0.002),
        lost_hints=0.0,
    )


class NoTokenCheck(MemoryStore):
    """Takes a turn from whoever had it, under whatever token."""

    def _finish(self, finish: End, ready: Counter[int], ended: list[Ended]) -> Finished:
        row = self._jobs.get(finish.job)
        if row is None or row.state not in OWNED or not isinstance(finish, TurnTaken):
            return super()._finish(finish, ready, ended)
        right = structs.replace(finish, token=row.job.token, worker=None)
        return structs.replace(super()._finish(right, ready, ended), token=finish.token)


def test_without_the_check_of_the_token_a_late_turn_counts() -> None:
    """G2."""
    assert hunt(40, NoTokenCheck, make=one_late_turn, first=8).promise is Promise.ONE_OWNER


def often_paused(seed: int, theme: Theme | None = None) -> Scenario:
    """Actors whose turns crash are paused again and again."""
    scenario = make_actors(seed, theme)
    plans = scenario.actors
    pauses = [
        ControlPlan(scenario.clients[0], 2.0 * n, name, Control.PAUSE)
        for name in plans.names
        for n in range(1, 10)
    ]
    tempers = {key: Temper((Fate.CRASHES,) * 12, takes_s=3.0) for key in plans.tempers}
    plans = structs.replace(plans, controls=tuple(pauses), tempers=tempers)
    return structs.replace(scenario, jobs=(), faults=(), storm_s=20.0, actors=plans)


class NoPause(MemoryStore):
    """Gives out turns of paused actors as if they were not."""

    def _turn_filled(self, attempt: Attempt) -> Attempt:
        return structs.replace(super()._turn_filled(attempt), paused=False)


def test_a_turn_that_begins_though_its_actor_is_paused_is_noticed() -> None:
    """G7."""
    assert hunt(10, NoPause, make=often_paused).promise is Promise.ACTORS


class NoReceipts(MemoryStore):
    """Forgets which messages it has had."""

    def _take_in(self, message: Message, most: int) -> Sent | Refused:
        self._receipts.pop(message.id, None)
        return super()._take_in(message, most)


def test_a_repeated_message_that_is_not_recognised_is_noticed() -> None:
    """G7."""
    assert hunt(20, NoReceipts, make=make_actors).promise is Promise.ACTORS


class LateStarts(MemoryStore):
    """Gets each start once more after its actor was stopped, as from a dispatcher that was frozen.

    Seeds in which that happens by itself are rare.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._starts: dict[tuple[str, str], NewActor] = {}

    def _start_actor(self, new: NewActor, reuse: bool) -> Started | Refused:
        self._starts[new.type, new.key] = new
        return super()._start_actor(new, reuse)

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        verdict = await super().stop_actor(type, key, by)
        if (type, key) in self._starts:
            await self.start_actors([self._starts[type, key]])
        return verdict


class ForgetsTheStopped(LateStarts):
    """Does not know the ids of actors that are gone."""

    def _start_actor(self, new: NewActor, reuse: bool) -> Started | Refused:
        self._receipts.pop(new.id, None)
        return super()._start_actor(new, reuse)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_start_that_comes_late_brings_no_actor_back(seed: int) -> None:
    """G7."""
    assert simulate(make_actors(seed, None), LateStarts).broken is None


def test_an_actor_that_comes_back_after_it_was_stopped_is_noticed() -> None:
    """G7."""
    assert hunt(20, ForgetsTheStopped, make=make_actors).promise is Promise.ACTORS


# without what guards mail that is put aside, recoveries and callbacks


class SortsWhatRuns(MemoryStore):
    """Puts aside and drops messages that a turn may have read, which goes on with them."""

    def _next_job(self, actor: ActorRow) -> JobRow | None:
        row = super()._next_job(actor)
        hides = self._is_sorting and row is not None and row.state in OWNED
        return None if hides else row

    _is_sorting = False

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        self._is_sorting = True
        try:
            return await super().sort_mail(type, key, number, action)
        finally:
            self._is_sorting = False

    def _wake_actor(self, name: tuple[str, str], ready: Counter[int]) -> None:
        self._is_sorting = False
        super()._wake_actor(name, ready)


def often_sorted(seed: int, theme: Theme | None = None) -> Scenario:
    """Actors with slow turns, and clients that drop and put aside messages all the time."""
    scenario = make_actors(seed, theme)
    plans = scenario.actors
    sorts = [
        ControlPlan(scenario.clients[0], 1.0 * n, name, control)
        for name in plans.names
        for n, control in enumerate([Control.DROP, Control.PARK] * 10)
    ]
    tempers = {key: Temper(takes_s=3.0) for key in plans.tempers}
    plans = structs.replace(plans, controls=tuple(sorts), tempers=tempers)
    return structs.replace(scenario, jobs=(), faults=(), storm_s=20.0, actors=plans)


def test_mail_that_a_turn_may_have_read_is_not_taken_from_it() -> None:
    """G7."""
    assert simulate(often_sorted(1)).broken is None
    assert hunt(20, SortsWhatRuns, make=often_sorted).promise is Promise.ACTORS


class ForgetsWhatFailed(MemoryStore):
    """Takes a message that a turn puts aside as read, so that nobody can put it back."""

    def _take_turn(self, row: JobRow, end: TurnTaken) -> None:
        super()._take_turn(row, structs.replace(end, turn=structs.replace(end.turn, parks=())))


def often_failing(seed: int, theme: Theme | None = None) -> Scenario:
    """Actors that recover from one message after the other."""
    scenario = make_actors(seed, theme)
    plans = scenario.actors
    retry = Options(retry=RetryPolicy(attempts=1, backoff_s=0.1))
    starts = tuple(
        structs.replace(
            one, actor=structs.replace(one.actor, type="archive", terms=ActorTerms(options=retry))
        )
        for one in plans.starts
    )
    tempers = {key: Temper((None, *[Fate.FAILS, None, None] * 20)) for key in plans.tempers}
    streams = tuple(
        structs.replace(
            stream,
            sends=tuple(
                (at, tuple(structs.replace(one, type="archive") for one in some))
                for at, some in stream.sends
            ),
        )
        for stream in plans.streams
    )
    plans = structs.replace(plans, starts=starts, streams=streams, tempers=tempers, controls=())
    return structs.replace(scenario, jobs=(), faults=(), actors=plans)


def test_a_message_that_a_recovery_puts_aside_is_kept() -> None:
    """G7."""
    assert simulate(often_failing(1)).broken is None
    assert hunt(10, ForgetsWhatFailed, make=often_failing).promise is Promise.ACTORS


class ResolvesTwice(MemoryStore):
    """Forgets that a callback was resolved."""

    def _take_in(self, message: Message, most: int) -> Sent | Refused:
        if message.actor is not None:
            self._receipts.pop(message.id, None)
        return super()._take_in(message, most)


def test_a_callback_of_which_two_values_count_is_noticed() -> None:
    """G7."""
    assert hunt(20, ResolvesTwice, make=make_actors).promise is Promise.ACTORS


class ResolvesForAnother(MemoryStore):
    """Brings the value of a callback to whoever has the key of its actor now."""

    def _take_in(self, message: Message, most: int) -> Sent | Refused:
        return super()._take_in(structs.replace(message, actor=None), most)


def often_replaced(seed: int, theme: Theme | None = None) -> Scenario:
    """Actors that are stopped, and started again with the same keys, while clients resolve."""
    scenario = make_actors(seed, theme)
    plans = scenario.actors
    client = scenario.clients[0]
    stops = [
        ControlPlan(client, 2.0 * n, name, Control.STOP) for name in plans.names for n in range(9)
    ]
    starts = [
        StartPlan(client, 2.0 * n + 0.5, structs.replace(one.actor, id=new_id()), True)
        for one in plans.starts
        for n in range(9)
    ]
    tempers = dict.fromkeys(plans.tempers, Temper(takes_s=0.1))
    plans = structs.replace(plans, controls=tuple(stops), starts=tuple(starts), tempers=tempers)
    return structs.replace(scenario, jobs=(), faults=(), storm_s=20.0, actors=plans)


def test_a_callback_that_reaches_another_actor_with_the_same_key_is_noticed() -> None:
    """G7."""
    assert simulate(often_replaced(1)).broken is None
    assert hunt(40, ResolvesForAnother, make=often_replaced).promise is Promise.ACTORS
