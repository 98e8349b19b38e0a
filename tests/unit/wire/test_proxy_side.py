"""A gateway's side of the dialogue, against the dispatcher's own: the checks of the seed."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.core.web_workers import lease_of
from longshore.model.attempt import Attempt, AttemptKey
from longshore.model.job import Options
from longshore.model.reports import NotBegunReport, SuccessReport
from longshore.model.worker import Attended, KindInfo, WorkerInfo
from longshore.testing.builders import new_id
from longshore.wire import messages as m
from longshore.wire import worker_side as side
from longshore.wire.dispatcher_side import FullSession
from longshore.wire.proxy_side import WEB_POOL, ProxiedSession

LEASE_S = 15.0
OWN_S = lease_of(30.0, 3, LEASE_S + 15.0)
ADOPTION = 3 << 32


def an_attempt(worker: UUID, token: int, session: int, timeout_s: float | None = None) -> Attempt:
    options = Options(timeout_s=timeout_s)
    return Attempt(new_id(), token, token, "work", b"\x80", options, worker, session, 1, 0, 0)


class Both:
    """Both sides of one session, with nothing in between that loses messages unless told to."""

    def __init__(self, slots: int = 2) -> None:
        self.now = 100.0
        self.worker, self.service = new_id(), new_id()
        self.ready = m.Ready(
            v=2,
            worker=self.worker,
            kinds={"work": KindInfo(pool=WEB_POOL)},
            pools={WEB_POOL: slots},
            service=self.service,
            lease_s=OWN_S,
        )
        self.proxy = ProxiedSession(self.ready, side.Patience(), ADOPTION)
        self.events: list[side.Event] = []

    def join(self, held: tuple[AttemptKey, ...] = (), placed: tuple[Attempt, ...] = ()) -> None:
        self.proxy.say_held(self.now, held, self.now)
        self.proxy.connected(self.now)
        [ready] = self.proxy.flush()
        assert isinstance(ready, m.Ready)
        self.said = ready
        info = WorkerInfo(
            id=ready.worker,
            kinds=ready.kinds,
            pools=ready.pools,
            service=ready.service,
            lease_s=ready.lease_s,
        )
        self.full = FullSession(b"", info, Attended(ready.session, placed), self.now, False)
        self.tell(self.full.welcome(ready, 1.0, LEASE_S))
        self.talk()

    def tell(self, messages: list[m.DispatcherMessage]) -> None:
        for message in messages:
            self.events += self.proxy.receive(self.now, message)

    def talk(self) -> list[m.WorkerMessage]:
        """Delivers what the gateway says; answers it."""
        said = self.proxy.flush()
        for message in said:
            if isinstance(message, m.Ping):
                self.tell(self.full.pinged(self.now, message, 1.0, LEASE_S))
            elif isinstance(message, m.Done):
                for report in message.reports:
                    sent = self.full.sent(report.job, report.token)
                    if sent is not None:
                        self.full.ended(sent)
                        self.full.settled(report.key)
                keys = tuple(report.key for report in message.reports)
                self.tell([m.Ack(self.worker, keys)])
        return said

    def give(self, token: int, timeout_s: float | None = None) -> Attempt:
        one = an_attempt(self.worker, token, self.said.session, timeout_s)
        self.full.given_at = self.now
        self.tell(self.full.assign([one]))
        return one

    def answered(self, *held: AttemptKey) -> list[m.WorkerMessage]:
        """The service answers a health check: it runs these."""
        asked_at, self.now = self.now + 0.5, self.now + 1.0
        self.proxy.say_held(self.now, held, asked_at)
        self.proxy.answered(self.now)
        return self.talk()

    def took(self, kind: type[side.Event]) -> list[side.Event]:
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = []
        return found


@pytest.fixture
def both() -> Both:
    both = Both()
    both.join()
    both.took(side.Joined)
    return both


def test_sessions_are_numbered_from_the_adoption_on(both: Both) -> None:
    assert both.said.session == ADOPTION + 1
    assert both.proxy.session == ADOPTION + 1


def test_no_ping_is_sent_because_time_passed(both: Both) -> None:
    assert both.proxy.wake_at() is None
    assert both.proxy.tick(both.now + 1e6) == []
    assert both.proxy.flush() == []


def test_an_answer_that_counted_is_known_by_the_number_of_its_ping(both: Both) -> None:
    both.proxy.answered(both.now)
    [ping] = both.proxy.flush()
    assert isinstance(ping, m.Ping)
    before = both.proxy.counted
    both.tell([m.Pong(both.worker, ping.no, 1.0)])
    assert both.proxy.counted == before, "without a lease it does not count"
    both.proxy.answered(both.now)
    [ping] = both.proxy.flush()
    assert isinstance(ping, m.Ping)
    both.tell([m.Pong(both.worker, ping.no, 1.0, OWN_S)])
    assert both.proxy.counted == ping.no


def test_its_lease_is_its_own_and_loss_goes_by_it(both: Both) -> None:
    assert OWN_S == 120.0
    assert not both.full.is_lost(both.now + OWN_S - 0.1, LEASE_S)
    assert both.full.is_lost(both.now + OWN_S, LEASE_S)


def test_a_job_that_the_service_forgot_is_sent_again_once_the_store_confirms_it(
    both: Both,
) -> None:
    one = both.give(7)
    both.proxy.taken(7, both.now)
    both.took(side.Start)
    both.answered()
    assert both.took(side.Start) == []
    assert [lost.token for lost in both.full.in_doubt] == [7]
    both.tell(both.full.read_back({7}, both.now))
    [start] = both.took(side.Start)
    assert isinstance(start, side.Start)
    assert (start.assignment.job, start.assignment.token) == (one.id, 7)


def test_a_job_that_ended_through_another_gateway_is_not_sent_again(both: Both) -> None:
    both.give(7)
    both.proxy.taken(7, both.now)
    both.took(side.Start)
    both.answered()
    both.tell(both.full.read_back(set(), both.now))
    assert both.took(side.Start) == []
    assert both.full.room == 2


def test_what_was_given_while_the_store_was_asked_stays(both: Both) -> None:
    both.give(7)
    asked_at = both.now - 0.5
    both.tell(both.full.read_back(set(), asked_at))
    assert 7 in both.full.placed


def test_an_attempt_that_was_taken_during_the_check_is_not_forgotten(both: Both) -> None:
    one = both.give(7)
    asked_at = both.now
    both.now += 0.5
    both.proxy.taken(7, both.now)
    both.proxy.say_held(both.now, (), asked_at)
    assert one.key in both.proxy.running


def test_a_job_that_the_service_should_not_run_is_stopped(both: Both) -> None:
    stranger = (new_id(), 99)
    both.answered(stranger)
    assert [event.attempt for event in both.took(side.Stop)] == [stranger]  # type: ignore[union-attr]


def test_what_it_runs_at_an_adoption_goes_on() -> None:
    both = Both()
    session = ADOPTION + 1
    mine = an_attempt(both.worker, 7, session)
    both.join(held=(mine.key,), placed=(mine,))
    assert both.said.held == (mine.key,)
    assert both.took(side.Stop) == []
    assert both.full.room == 1


def test_what_is_placed_and_not_held_at_an_adoption_is_given() -> None:
    both = Both()
    mine = an_attempt(both.worker, 7, ADOPTION + 1)
    both.join(placed=(mine,))
    [start] = both.took(side.Start)
    assert isinstance(start, side.Start)
    assert start.assignment.token == 7


def test_a_job_past_its_expiry_is_found_by_the_age_that_the_ping_gives(both: Both) -> None:
    one = both.give(7, timeout_s=5.0)
    both.proxy.taken(7, both.now)
    began = both.now
    both.answered(one.key)
    assert not both.full.is_overdue(one, began + 14.9, 10.0)
    assert both.full.is_overdue(one, began + 15.1, 10.0)


def test_a_job_that_the_service_never_lists_is_past_its_expiry_too(both: Both) -> None:
    """It took the job, and forgets it at each health check."""
    one = both.give(7, timeout_s=5.0)
    both.proxy.taken(7, both.now)
    began = both.now
    for _ in range(3):
        both.answered()
    assert not both.full.is_overdue(one, began + 14.9, 10.0)
    assert both.full.is_overdue(one, began + 16.1, 10.0)


def test_a_refused_attempt_closes_its_slot_until_the_next_answer() -> None:
    both = Both(slots=1)
    both.join()
    one = both.give(7)
    both.proxy.close_slot(both.now)
    both.proxy.ended(NotBegunReport(*one.key))
    both.talk()
    assert both.full.room == 0
    both.answered()
    assert both.full.room == 1


def test_a_report_that_is_not_acknowledged_is_not_taken_for_running(both: Both) -> None:
    one = both.give(7)
    both.proxy.taken(7, both.now)
    both.proxy.ended(SuccessReport(*one.key))
    both.proxy.say_held(both.now, (one.key,), both.now)
    assert both.proxy.running == frozenset()


def test_a_lost_service_says_so_and_only_once(both: Both) -> None:
    both.proxy.lost("gone")
    assert both.proxy.flush() == [m.Bye(both.worker, "gone", lost=True)]
    both.proxy.lost("gone")
    assert both.proxy.flush() == []


def test_the_lease_of_the_gateway_stops_nothing_at_the_service(both: Both) -> None:
    """Another gateway may speak for it by then; the service has a lease of its own."""
    both.give(7)
    both.proxy.taken(7, both.now)
    both.took(side.Start)
    assert both.proxy.tick(both.now + 10 * OWN_S) == []
