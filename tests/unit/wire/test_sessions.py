"""Both sides of the dialogue against each other: no sockets, no clock but a number.

Each test is a story. `Pair` carries messages at once, unless the story loses them.
"""

from uuid import UUID

import pytest
from msgspec import structs

from longshore.model.attempt import Attempt
from longshore.model.job import LogEntry, LogKind, Options
from longshore.model.reports import SuccessReport
from longshore.model.worker import Attended, KindInfo, Pool, WorkerInfo
from longshore.wire import messages as m
from longshore.wire import worker_side as w
from longshore.wire.codec import encode
from longshore.wire.dispatcher_side import SENT_AGAIN_S, FullSession

WORKER = UUID(int=100)
LEASE_S, PING_S = 15.0, 1.0
POOLS: dict[str, int] = {Pool.COROUTINE: 3, Pool.PROCESS: 2}


def reported(attended: FullSession, one: Attempt) -> Attempt | None:
    """The end of an attempt is heard; what it was, if it is placed there."""
    sent = attended.sent(one.id, one.token)
    if sent is None:
        return None
    attended.ended(sent)
    return sent.claimed


def claimed(number: int, token: int, kind: str = "fetch") -> Attempt:
    job = UUID(int=number)
    return Attempt(job, number, token, kind, b"\x80", Options(), WORKER, 1, 1, 0, 0)


def success(attempt: Attempt) -> m.Report:
    return SuccessReport(attempt.id, attempt.token, result=b"\xc0")


class Pair:
    """A worker's session, and that of its dispatcher."""

    def __init__(self) -> None:
        kinds = {"fetch": KindInfo(Pool.COROUTINE), "resize": KindInfo(Pool.PROCESS)}
        self.ready = m.Ready(v=2, worker=WORKER, kinds=kinds, pools=POOLS)
        self.worker = w.WorkerSession(self.ready, w.Patience())
        self.events: list[w.Event] = []
        self.session: FullSession | None = None

    def said(self) -> list[m.WorkerMessage]:
        return self.worker.flush()

    def tell(self, now: float, *messages: m.DispatcherMessage) -> list[w.Event]:
        events: list[w.Event] = []
        for message in messages:
            events += self.worker.receive(now, message)
        return events

    def join(self, now: float = 0.0, *placed: Attempt, session: int = 1) -> list[w.Event]:
        self.worker.connected(now)
        (ready,) = self.said()
        assert isinstance(ready, m.Ready)
        info = WorkerInfo(id=ready.worker, kinds=ready.kinds, pools=ready.pools)
        attended = Attended(session, placed)
        self.session = FullSession(b"peer", info, attended, now, ready.draining)
        return self.tell(now, *self.session.welcome(ready, PING_S, LEASE_S))

    @property
    def attended(self) -> FullSession:
        assert self.session is not None
        return self.session

    def ping(self, now: float, lease_s: float | None = LEASE_S) -> list[w.Event]:
        """The worker's next PING, answered."""
        events = self.worker.tick(now)
        for message in self.said():
            if isinstance(message, m.Ping):
                events += self.tell(now, *self.attended.pinged(now, message, PING_S, lease_s))
        return events


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_worker_joins_then_pings(pair: Pair) -> None:
    assert pair.join() == [w.Joined(1)]
    (ping,) = pair.said()
    assert ping == m.Ping(WORKER, 1)
    assert pair.worker.wake_at() == PING_S


def test_before_it_is_welcomed_a_worker_says_only_ready(pair: Pair) -> None:
    pair.worker.connected(0.0)
    assert [type(message) for message in pair.said()] == [m.Ready]
    pair.worker.tick(0.9)
    assert pair.said() == []


def test_a_job_is_started_once_however_often_it_is_sent(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    first = pair.attended.assign([one])
    assert [type(event) for event in pair.tell(0.1, *first)] == [w.Start]
    assert pair.tell(0.2, *first) == []


def test_a_report_is_kept_until_it_is_acknowledged_and_sent_again_after_a_reconnect(
    pair: Pair,
) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    pair.said()
    pair.worker.ended(success(one))
    assert pair.said() == [m.Done(WORKER, (success(one),))]
    assert pair.said() == []

    pair.join(5.0, session=2)
    assert m.Done(WORKER, (success(one),)) in pair.said()
    assert not pair.worker.settled
    pair.tell(5.1, m.Ack(WORKER, ((one.id, one.token),)))
    assert pair.worker.settled


def test_what_an_attempt_said_is_sent_again_until_its_end_is_acknowledged(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    pair.said()
    entry = LogEntry(one.id, one.token, 1, LogKind.TEXT, b"hello")
    pair.worker.said(entry)
    assert pair.said() == [m.Logs(WORKER, (entry,))]
    pair.worker.ended(success(one))
    pair.join(5.0, session=2)
    assert pair.said()[-2:] == [m.Logs(WORKER, (entry,)), m.Done(WORKER, (success(one),))]
    pair.tell(5.1, m.Ack(WORKER, ((one.id, one.token),)))
    pair.join(6.0, session=3)
    assert not [message for message in pair.said() if isinstance(message, m.Logs)]


def test_what_attempts_say_that_were_given_up_is_nobodys(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    pair.said()
    entries = [LogEntry(one.id, one.token, seq, LogKind.TEXT, b"") for seq in (1, 2, 3)]
    pair.worker.said(entries[0])
    assert pair.said() == [m.Logs(WORKER, (entries[0],))]
    pair.worker.said(entries[1])
    pair.worker.rejoin(UUID(int=101), 20.0)
    pair.worker.said(entries[2])
    assert w.Joined(3) in pair.join(20.0, session=3)
    assert not [message for message in pair.said() if isinstance(message, m.Logs)]


def test_a_lost_jobs_message_is_sent_again_with_the_same_token(pair: Pair) -> None:
    pair.join()
    lost, later = claimed(1, 11), claimed(2, 12)
    pair.attended.assign([lost])
    pair.tell(0.2, *pair.attended.assign([later]))
    events = pair.ping(1.0)
    assert events == [w.Start(pair_assignment(lost))]


def pair_assignment(one: Attempt) -> m.Assignment:
    return m.Assignment(one.id, one.token, one.number, one.kind, one.args)


def test_a_job_that_is_still_in_flight_is_not_sent_again(pair: Pair) -> None:
    pair.join()
    pair.said()
    pair.attended.assign([claimed(1, 11)])
    told = pair.attended.pinged(1.0, m.Ping(WORKER, 2, seen=0), PING_S, LEASE_S)
    assert [type(one) for one in told] == [m.Pong]


def test_an_attempt_that_ended_but_is_not_recorded_yet_is_not_sent_again(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    pair.worker.ended(success(one))
    assert pair.ping(1.0) == []


def test_an_attempt_that_is_somebody_elses_is_aborted(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    pair.attended.settled((one.id, one.token))
    assert pair.ping(1.0) == [w.Stop((one.id, one.token), "the job is not this worker's any more")]


def test_an_adopting_dispatcher_sends_what_is_placed_and_not_held(pair: Pair) -> None:
    """G8: running jobs go on, and the dispatcher sends those that were claimed but never sent."""
    pair.join()
    held, never_sent = claimed(1, 11), claimed(2, 12)
    pair.tell(0.1, *pair.attended.assign([held]))
    events = pair.join(4.0, held, never_sent, session=2)
    assert events == [w.Joined(2), w.Start(pair_assignment(never_sent))]
    assert pair.worker.running == {(held.id, 11), (never_sent.id, 12)}


def test_an_adopting_dispatcher_aborts_what_the_store_gave_to_others(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    events = pair.join(4.0, session=2)
    assert events[1:] == [w.Stop((one.id, 11), "the job is not this worker's any more")]


def test_silence_for_three_periods_makes_the_worker_move(pair: Pair) -> None:
    pair.join()
    pair.ping(1.0)
    pair.worker.tick(2.0)
    assert pair.worker.tick(4.9) == []
    (moved,) = pair.worker.tick(5.0)
    assert isinstance(moved, w.Moved)


def test_any_message_ends_the_silence(pair: Pair) -> None:
    pair.join()
    pair.ping(1.0)
    pair.worker.tick(2.0)
    pair.tell(4.0, m.Ack(WORKER, ()))
    assert pair.worker.tick(5.0) == []


def test_the_lease_counts_from_when_the_answered_ping_was_sent(pair: Pair) -> None:
    """G6: an answer that comes late renews from the send, not from the arrival."""
    pair.join()
    pair.tell(0.1, *pair.attended.assign([claimed(1, 11)]))
    pair.worker.tick(1.0)
    (_first, ping) = [message for message in pair.said() if isinstance(message, m.Ping)]
    pair.tell(9.0, m.Pong(WORKER, ping.no, 100.0, LEASE_S))
    assert pair.worker.tick(10.9) == []
    assert pair.worker.tick(11.0) == [
        w.StopAll("no dispatcher renewed the worker's lease", kill=False)
    ]


def test_a_worker_that_cannot_renew_stops_its_jobs_and_comes_back_as_another(pair: Pair) -> None:
    """G6: aborted 5 s, killed 2 s before the lease ends."""
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    stops = []
    for tenth in range(150):
        now = tenth / 10
        stops += [(now, e) for e in pair.worker.tick(now) if not isinstance(e, w.Moved)]
    reason = "no dispatcher renewed the worker's lease"
    assert stops[0] == (10.0, w.StopAll(reason, kill=False))
    assert stops[1:3] == [(13.0, w.StopAll(reason, kill=True)), (13.0, w.Orphaned(reason))]

    pair.said()
    pair.worker.rejoin(UUID(int=101), 13.0)
    bye, ready = pair.said()
    assert bye == m.Bye(WORKER, "it came back as another worker")
    assert isinstance(ready, m.Ready)
    assert (ready.worker, ready.held) == (UUID(int=101), ())


def test_an_idle_worker_has_nothing_to_stop(pair: Pair) -> None:
    pair.join()
    events = [e for tenth in range(300) for e in pair.worker.tick(tenth / 10)]
    assert {type(event) for event in events} == {w.Moved}


def test_a_pong_without_a_lease_makes_the_worker_move_at_half_its_lease(pair: Pair) -> None:
    pair.join()
    for second in range(1, 8):
        assert pair.ping(float(second), lease_s=None) == []
    (moved,) = pair.ping(8.0, lease_s=None)
    assert moved == w.Moved("the dispatcher cannot reach its store")


def test_a_worker_that_is_gone_stops_everything_at_once(pair: Pair) -> None:
    pair.worker.connected(0.0)
    events = pair.tell(0.1, m.Gone(WORKER, "not heard of for 15 s"))
    assert [type(event) for event in events] == [w.StopAll, w.Orphaned]


def test_what_ends_after_it_had_to_be_given_up_is_not_reported(pair: Pair) -> None:
    pair.join()
    one = claimed(1, 11)
    pair.tell(0.1, *pair.attended.assign([one]))
    pair.worker.rejoin(UUID(int=101), 1.0)
    pair.said()
    pair.worker.ended(success(one))
    assert pair.worker.settled


def test_a_draining_worker_says_so_and_is_given_nothing(pair: Pair) -> None:
    pair.join()
    pair.said()
    pair.worker.drain(0.5)
    (ping,) = pair.said()
    assert isinstance(ping, m.Ping)
    assert ping.draining
    pair.attended.pinged(0.5, ping, PING_S, LEASE_S)
    assert pair.attended.open_slots == {}


def test_a_slot_is_free_as_soon_as_its_attempt_is_reported(pair: Pair) -> None:
    pair.join()
    one, two = claimed(1, 11), claimed(2, 12, "resize")
    pair.attended.assign([one, two])
    assert pair.attended.open_slots == {Pool.COROUTINE: 2, Pool.PROCESS: 1}
    assert reported(pair.attended, one) == one
    assert reported(pair.attended, one) == one
    assert pair.attended.open_slots[Pool.COROUTINE] == 3
    pair.attended.settled((one.id, 11))
    assert pair.attended.open_slots[Pool.COROUTINE] == 3
    assert reported(pair.attended, one) is None


def test_what_could_not_be_sent_is_known_until_it_is_sent_again(pair: Pair) -> None:
    pair.join()
    sent, unsent = claimed(1, 11), claimed(2, 12)
    pair.tell(0.1, *pair.attended.assign([sent]))
    pair.attended.assign([unsent])
    pair.attended.undeliverable([unsent])
    assert pair.attended.undelivered() == [unsent]
    pair.attended.pinged(1.0, m.Ping(WORKER, 2, seen=2), PING_S, LEASE_S)
    assert pair.attended.undelivered() == []


def test_what_ended_before_it_was_read_back_needs_not_be_sent(pair: Pair) -> None:
    pair.join()
    ended, unsent = claimed(1, 11), claimed(2, 12)
    pair.tell(0.1, *pair.attended.assign([ended]))
    pair.attended.settled((ended.id, 11))
    pair.attended.assign([ended, unsent])
    pair.attended.undeliverable([ended, unsent])
    assert pair.attended.undelivered() == [unsent]


def test_what_comes_when_the_lease_is_over_is_not_started_but_sent_again(pair: Pair) -> None:
    """G6: a frozen worker wakes up, and finds jobs in its socket that another worker owns."""
    pair.join()
    late = pair.attended.assign([claimed(1, 11)])
    assert pair.tell(11.0, *late) == []
    assert pair.ping(11.5) == [w.Start(pair_assignment(claimed(1, 11)))]


def test_jobs_that_come_before_the_welcome_are_another_sessions(pair: Pair) -> None:
    pair.join()
    jobs = pair.attended.assign([claimed(1, 11)])
    pair.worker.connected(5.0)
    assert pair.tell(5.1, *jobs) == []
    assert pair.worker.running == frozenset()


def test_only_a_welcome_ends_the_wait_for_one(pair: Pair) -> None:
    pair.worker.connected(0.0)
    assert pair.tell(1.0, m.Jobs(WORKER, 1, ())) == []
    (moved,) = pair.worker.tick(3.0)
    assert isinstance(moved, w.Moved)


def test_a_welcome_to_an_older_ready_is_not_taken(pair: Pair) -> None:
    pair.worker.connected(0.0)
    pair.worker.connected(3.0)
    assert pair.tell(3.1, m.Welcome(WORKER, 1, PING_S, LEASE_S)) == []
    assert pair.tell(3.2, m.Welcome(WORKER, 2, PING_S, LEASE_S)) == [w.Joined(2)]


def test_every_ready_asks_for_a_later_session(pair: Pair) -> None:
    asked = []
    for now in (0.0, 3.0, 6.0):
        pair.worker.connected(now)
        (ready,) = pair.said()
        assert isinstance(ready, m.Ready)
        asked.append(ready.session)
    assert asked == [1, 2, 3]


def test_an_attempt_that_was_read_from_the_store_before_it_ended_is_not_placed_again(
    pair: Pair,
) -> None:
    pair.join()
    one, two = claimed(1, 11), claimed(2, 12)
    pair.tell(0.1, *pair.attended.assign([one]))
    reported(pair.attended, one)
    pair.attended.settled((one.id, one.token))
    [jobs] = pair.attended.assign([one, two])
    assert pair.tell(0.2, jobs) == [w.Start(pair_assignment(two))]
    assert pair.attended.open_slots[Pool.COROUTINE] == 2


def test_time_counts_from_when_the_worker_said_that_it_runs_a_job(pair: Pair) -> None:
    pair.join()
    one = structs.replace(claimed(1, 11), options=Options(timeout_s=5.0))
    jobs = pair.attended.assign([one])
    assert not pair.attended.is_overdue(one, 100.0, 10.0)
    pair.tell(9.0, *jobs)
    pair.ping(9.5)
    assert not pair.attended.is_overdue(one, 24.4, 10.0)
    assert pair.attended.is_overdue(one, 24.5, 10.0)


MIB = 1024 * 1024


def test_jobs_that_are_too_large_for_one_message_come_in_several_each_with_its_number(
    pair: Pair,
) -> None:
    """G1: 30 MiB of arguments are no reason to drop the connection, again and again."""
    pair.join()
    large = [structs.replace(claimed(n, n), args=bytes(MIB)) for n in range(1, 31)]
    sent = pair.attended.assign(large)
    assert all(sum(map(len, encode(one))) <= 8 * MIB + 64 * 1024 for one in sent)
    assert len(pair.tell(0.1, *sent[:2])) == 14
    assert pair.ping(1.0) == [], "what was not seen is in flight, not lost"
    assert len(pair.tell(1.1, *sent[2:])) == 16
    assert len(pair.worker.running) == 30


def test_of_several_messages_with_jobs_the_one_that_got_lost_is_sent_again(pair: Pair) -> None:
    pair.join()
    large = [structs.replace(claimed(n, n), args=bytes(MIB)) for n in range(1, 31)]
    first, _lost, *rest = pair.attended.assign(large)
    pair.tell(0.1, first, *rest)
    missing = 30 - len(pair.worker.running)
    assert 0 < missing < 30
    again = [event for event in pair.ping(1.0) if isinstance(event, w.Start)]
    assert len(again) == missing
    assert len(pair.worker.running) == 30


def test_a_worker_is_given_no_more_while_much_is_on_its_way_to_it(pair: Pair) -> None:
    pair.join()
    pair.attended.assign([structs.replace(claimed(1, 11), args=bytes(64 * MIB))])
    assert pair.attended.open_slots == {}
    held = m.Ping(WORKER, 9, 1, ((UUID(int=1), 11),))
    pair.attended.pinged(0.2, held, PING_S, LEASE_S)
    assert pair.attended.open_slots[Pool.COROUTINE] == 2


def test_what_ended_unseen_is_not_on_its_way_any_more(pair: Pair) -> None:
    pair.join()
    one = structs.replace(claimed(1, 11), args=bytes(64 * MIB))
    pair.attended.assign([one])
    reported(pair.attended, one)
    pair.attended.settled((one.id, one.token))
    assert not pair.attended.is_choked


def with_result(attempt: Attempt, size: int) -> m.Report:
    return structs.replace(success(attempt), result=bytes(size))


def ended_at_once(pair: Pair, number: int, size: int) -> list[Attempt]:
    """So many attempts that were given, and ended with results of this size."""
    pair.join()
    attempts = [claimed(n, n) for n in range(1, number + 1)]
    pair.tell(0.1, *pair.attended.assign(attempts))
    pair.said()
    for one in attempts:
        pair.worker.ended(with_result(one, size))
    return attempts


def acknowledged(pair: Pair, now: float, done: m.Done) -> None:
    pair.tell(now, m.Ack(WORKER, tuple(report.key for report in done.reports)))


def test_large_results_go_out_a_few_at_a_time_until_all_are_acknowledged(pair: Pair) -> None:
    """G1: 100 results of 1 MiB each are recorded, also if all go out after a reconnect."""
    attempts = ended_at_once(pair, 100, MIB)
    pair.join(5.0, session=2)
    came: list[int] = []
    while not pair.worker.settled:
        dones = [one for one in pair.said() if isinstance(one, m.Done)]
        assert dones, "it waits for nothing"
        assert sum(len(one.reports) for one in dones) <= 16
        for one in dones:
            assert sum(map(len, encode(one))) <= 8 * MIB + 64 * 1024
            came += [report.token for report in one.reports]
            acknowledged(pair, 5.1, one)
    assert came == [one.token for one in attempts]


def test_small_reports_do_not_wait_for_large_ones(pair: Pair) -> None:
    ended_at_once(pair, 40, MIB)
    small = claimed(99, 99)
    pair.tell(0.2, *pair.attended.assign([small]))
    pair.worker.ended(success(small))
    sent = {one.token for d in pair.said() if isinstance(d, m.Done) for one in d.reports}
    assert 99 in sent
    assert len(sent) < 40


def test_a_report_that_stays_unacknowledged_is_sent_again_after_a_while(pair: Pair) -> None:
    """G3: a DONE that was lost, on a connection that goes on, is not lost for good."""
    (one,) = ended_at_once(pair, 1, 1)
    assert [type(message) for message in pair.said()] == [m.Done]
    again: list[float] = []
    for tenths in range(10, 150, 10):
        pair.worker.tick(tenths / 10)
        if m.Done(WORKER, (with_result(one, 1),)) in pair.said():
            again.append(tenths / 10)
        pair.tell(tenths / 10, m.Pong(WORKER, tenths // 10 + 1, PING_S, LEASE_S))
    assert again == [6.0, 12.0]


def test_a_report_that_a_dispatcher_never_got_is_asked_for_at_the_second_ping(pair: Pair) -> None:
    """G3."""
    (one,) = ended_at_once(pair, 1, 1)
    entry = LogEntry(one.id, one.token, 1, LogKind.TEXT, b"hello")
    pair.worker._logs.add(entry)
    pair.said()  # LOGS and DONE, both lost
    pair.ping(1.0)
    assert pair.said() == [], "the first PING may have overtaken the report"
    pair.ping(2.0)
    assert pair.said() == [m.Logs(WORKER, (entry,)), m.Done(WORKER, (with_result(one, 1),))]


def test_a_report_that_came_is_not_asked_for(pair: Pair) -> None:
    (one,) = ended_at_once(pair, 1, 1)
    pair.said()
    reported(pair.attended, one)
    pair.ping(1.0)
    pair.ping(2.0)
    assert pair.said() == []


def test_a_report_of_what_is_not_placed_here_is_asked_for_once_until_it_is_settled(
    pair: Pair,
) -> None:
    """A dispatcher died, and its ACK got lost. The next one has no attempt placed."""
    (one,) = ended_at_once(pair, 1, 1)
    pair.join(3.0, session=2)
    attempt = one.id, one.token
    assert pair.attended.admits_stray(one.token)
    assert not pair.attended.admits_stray(one.token), "it is on its way to the store already"
    assert pair.attended.has_report(attempt)
    pair.attended.settled(attempt)
    assert not pair.attended.has_report(attempt)


# what could not be sent, was sent twice, or is read back


def test_a_flood_of_pings_that_claim_to_have_seen_all_has_jobs_sent_again_seldom(
    pair: Pair,
) -> None:
    pair.join()
    pair.attended.assign([claimed(1, 1)])
    flood = [
        pair.attended.pinged(1.0, m.Ping(WORKER, no, 2**62), PING_S, LEASE_S) for no in range(100)
    ]
    assert [type(one) for told in flood for one in told].count(m.Jobs) == 1
    later = pair.attended.pinged(1.0 + SENT_AGAIN_S, m.Ping(WORKER, 101, 2**62), PING_S, LEASE_S)
    assert [type(one) for one in later] == [m.Pong, m.Jobs]


def test_what_is_sent_again_takes_no_second_slot(pair: Pair) -> None:
    pair.join()
    lost, later = claimed(1, 11), claimed(2, 12)
    pair.attended.assign([lost])
    pair.tell(0.2, *pair.attended.assign([later]))
    pair.ping(1.0)
    assert pair.attended.open_slots[Pool.COROUTINE] == 1
    reported(pair.attended, lost)
    pair.attended.settled((lost.id, 11))
    assert pair.attended.open_slots[Pool.COROUTINE] == 2


def test_what_the_worker_has_seen_was_delivered_whatever_else_could_not_be_sent(
    pair: Pair,
) -> None:
    pair.join()
    seen, unseen = claimed(1, 11), claimed(2, 12)
    pair.tell(0.1, *pair.attended.assign([seen]))
    pair.ping(1.0)
    pair.attended.assign([unseen])
    pair.attended.unsent()
    assert pair.attended.undelivered() == [unseen]


def test_what_was_adopted_and_ended_before_it_was_read_back_is_not_placed_again(
    pair: Pair,
) -> None:
    one = claimed(1, 11)
    pair.join(0.0, one)
    reported(pair.attended, one)
    pair.attended.settled((one.id, 11))
    assert pair.attended.assign([one]) == []
    assert pair.attended.open_slots[Pool.COROUTINE] == 3


def test_of_many_attempts_the_oldest_are_forgotten_not_the_newest(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest attempts may still be sent twice."""
    monkeypatch.setattr(w, "REMEMBERED_ATTEMPTS", 2)
    pair.join()
    sent = [pair.attended.assign([claimed(number, 10 + number)]) for number in (1, 2, 3)]
    for jobs in sent:
        assert len(pair.tell(0.1, *jobs)) == 1
    assert pair.tell(0.2, *sent[1], *sent[2]) == []


def test_one_that_was_told_to_drain_is_given_nothing_though_it_does_not_know_it_yet(
    pair: Pair,
) -> None:
    pair.join()
    assert pair.attended.heed(True)
    told = pair.attended.pinged(1.0, m.Ping(WORKER, 2), PING_S, LEASE_S)
    assert [type(one) for one in told] == [m.Pong, m.Exit]
    assert pair.attended.open_slots == {}


# a lease that is renewed at the last moment


def test_a_worker_that_was_renewed_while_it_stopped_stops_politely_the_next_time(
    pair: Pair,
) -> None:
    pair.join()
    pair.tell(0.1, *pair.attended.assign([claimed(1, 11)]))
    pair.worker.tick(9.0)
    *_, ping = [message for message in pair.said() if isinstance(message, m.Ping)]
    assert stops(pair.worker.tick(10.0)) == [False]
    pair.tell(10.5, m.Pong(WORKER, ping.no, 100.0, LEASE_S))
    assert stops(pair.worker.tick(18.9)) == []
    assert stops(pair.worker.tick(19.0)) == [False]


def test_a_worker_that_was_welcomed_while_it_stopped_stops_politely_the_next_time(
    pair: Pair,
) -> None:
    pair.join()
    pair.tell(0.1, *pair.attended.assign([claimed(1, 11)]))
    pair.worker.connected(10.5)
    assert stops(pair.worker.tick(10.6)) == [False]
    assert pair.tell(10.7, m.Welcome(WORKER, 2, 100.0, LEASE_S)) == [w.Joined(2)]
    assert stops(pair.worker.tick(20.4)) == []
    assert stops(pair.worker.tick(20.5)) == [False]


def test_the_first_lease_counts_from_when_ready_was_sent(pair: Pair) -> None:
    """G6: a WELCOME that comes late is as old as the READY that it answers."""
    pair.worker.connected(0.0)
    pair.tell(5.0, m.Welcome(WORKER, 1, 100.0, LEASE_S))
    pair.tell(5.1, m.Jobs(WORKER, 1, (pair_assignment(claimed(1, 11)),)))
    assert stops(pair.worker.tick(9.9)) == []
    assert stops(pair.worker.tick(10.0)) == [False]


# what attempts take of a worker beside a slot


def taking(number: int, token: int, shape: str) -> Attempt:
    return structs.replace(claimed(number, token), options=Options(resources=shape))


def with_resources(pair: Pair, *placed: Attempt, **amounts: float) -> FullSession:
    info = WorkerInfo(id=WORKER, kinds=pair.ready.kinds, pools=POOLS, resources=amounts)
    return FullSession(b"peer", info, Attended(1, placed), 0.0, False)


def test_an_attempt_takes_its_resources_until_its_end_is_heard(pair: Pair) -> None:
    session = with_resources(pair, taking(1, 11, "cpu=1"), cpu=4.0)
    assert session.free_resources == {"cpu": 3.0}
    session.assign([taking(2, 12, "cpu=2"), claimed(3, 13)])
    assert session.free_resources == {"cpu": 1.0}
    assert reported(session, taking(2, 12, "cpu=2")) is not None
    assert session.free_resources == {"cpu": 3.0}


def test_an_attempt_that_may_still_run_keeps_its_resources(pair: Pair) -> None:
    session = with_resources(pair, cpu=4.0)
    attempt = taking(1, 11, "cpu=3")
    session.assign([attempt])
    session.settled(attempt.key)
    assert session.free_resources == {"cpu": 1.0}
    session.pinged(1.0, m.Ping(WORKER, 1, begun={}), PING_S, LEASE_S)
    assert session.free_resources == {"cpu": 4.0}


def stops(events: list[w.Event]) -> list[bool]:
    """Of each order to stop everything, whether it kills."""
    return [event.kill for event in events if isinstance(event, w.StopAll)]
