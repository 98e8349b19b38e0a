"""How long a job waited for what: of its history, its stays behind keys, and pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from longshore.core.lanes import lane_of
from longshore.core.lifecycle import HISTORY_FIRST, HISTORY_LAST
from longshore.core.queue_waits import waited_in_words, waiting_now
from longshore.core.waits import waited, waited_words, worth_telling
from longshore.model.depth import LaneDepth
from longshore.model.group import GATE
from longshore.model.job import HistoryEntry, Job, JobState, Options
from longshore.model.waited import MOST_STAYS, Kept, Pause, Stay, WaitCause, Waited

S, C = JobState, WaitCause
BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def job(*moves: tuple[JobState, float], state: JobState | None = None, **other: object) -> Job:
    """A job that came to these states at these seconds."""
    history = tuple(HistoryEntry(one, at(seconds)) for one, seconds in moves)
    values = {
        **dict.fromkeys(("unique_key", "run_at", "started_at", "ended_at", "worker")),
        **dict.fromkeys(("result", "error")),
        **dict.fromkeys(("round", "attempt", "failures", "crashes", "token", "number"), 1),
        "id": UUID(int=1),
        "kind": "work",
        "queue": "default",
        "target": "",
        "priority": 0,
        "args": b"",
        "options": Options(),
        "created_at": at(0),
        "state": state or moves[-1][0],
        "history": history,
        **other,
    }
    return Job(**values)  # type: ignore[arg-type]


def told(of: Job, now: float, stays: list[Stay] | None = None, *pauses: Pause) -> dict[str, float]:
    """For each cause, by its key if it has one, how long; `…+` is since when it still waits."""
    found: dict[str, float] = {}
    for one in waited(of, Kept(tuple(stays or ()), pauses), at(now)):
        name = one.key or one.cause.value
        if one.s:
            found[name] = one.s
        if one.since is not None:
            found[f"{name}+"] = (one.since - BEGAN).total_seconds()
    return found


def test_each_state_before_the_attempt_is_waited_for_its_own_cause() -> None:
    one = job((S.WAITING, 0), (S.DELAYED, 2), (S.READY, 5), (S.RUNNING, 6), (S.SUCCEEDED, 9))
    assert told(one, 99) == {"dependencies": 2, "delay": 3, "slot": 1}


def test_a_key_counts_as_long_as_the_job_was_behind_it() -> None:
    one = job((S.READY, 0), (S.RUNNING, 10), (S.SUCCEEDED, 11))
    stays = [Stay("a=1", at(1), at(4)), Stay("b=2", at(5), at(6)), Stay("a=1", at(7), at(9))]
    assert told(one, 99, stays) == {"a=1": 5, "b=2": 1, "slot": 4}


def test_a_pause_counts_before_a_key_and_nothing_twice() -> None:
    one = job((S.READY, 0), (S.RUNNING, 10), (S.SUCCEEDED, 11))
    pauses = Pause(False, at(-5), at(2)), Pause(False, at(3), at(5))
    assert told(one, 99, [Stay("a=1", at(1), at(9))], *pauses) == {
        "paused_queue": 4,
        "a=1": 5,
        "slot": 1,
    }


def test_a_pause_of_the_group_is_told_apart_from_what_it_depends_on() -> None:
    one = job((S.WAITING, 0), (S.READY, 10), (S.RUNNING, 10), (S.SUCCEEDED, 11))
    assert told(one, 99, None, Pause(True, at(2), at(6))) == {
        "dependencies": 6,
        "paused_group": 4,
    }


def test_the_time_between_attempts_is_a_backoff_unless_the_job_asked_for_it() -> None:
    entries = [(S.READY, 0), (S.RUNNING, 0), (S.DELAYED, 1), (S.READY, 4), (S.RUNNING, 4)]
    one = job(*entries, (S.SUCCEEDED, 5))
    assert told(one, 99) == {"backoff": 3}
    asked = HistoryEntry(S.DELAYED, at(1), info="snoozed for 3.0 s")
    snoozed = job(*entries, (S.SUCCEEDED, 5))
    history = (*snoozed.history[:2], asked, *snoozed.history[3:])
    assert told(job(*entries, (S.SUCCEEDED, 5), history=history), 99) == {"delay": 3}


def test_only_the_last_round_counts() -> None:
    one = job((S.READY, 0), (S.RUNNING, 5), (S.FAILED, 6), (S.READY, 20), (S.RUNNING, 22))
    assert told(one, 99) == {"slot": 2}
    assert told(one, 99, [Stay("a=1", at(1), at(4)), Stay("a=1", at(20), at(21))]) == {
        "a=1": 1,
        "slot": 1,
    }


def test_what_it_waits_for_now_is_told_by_since_when() -> None:
    one = job((S.READY, 0))
    assert told(one, 5) == {"slot+": 0}
    assert told(one, 5, [Stay("a=1", at(1))]) == {"slot": 1, "a=1+": 1}
    assert told(one, 7, [Stay("a=1", at(1))]) == told(one, 5, [Stay("a=1", at(1))])
    paused = Pause(False, at(3))
    assert told(one, 7, [Stay("a=1", at(1))], paused) == {
        "slot": 1,
        "a=1": 2,
        "paused_queue+": 3,
    }


def test_a_job_that_was_cancelled_behind_a_key_waited_until_then() -> None:
    one = job((S.READY, 0), (S.CANCELLED, 4))
    assert told(one, 99, [Stay("a=1", at(1), at(4))]) == {"slot": 1, "a=1": 3}


def test_an_attempt_that_was_held_ahead_began_later() -> None:
    one = job((S.READY, 0), (S.RUNNING, 1), (S.SUCCEEDED, 9), started_at=at(3))
    assert told(one, 99) == {"slot": 3}


def test_a_claim_that_was_undone_left_no_entry() -> None:
    assert told(job((S.READY, 0), state=S.WAITING), 9) == {"dependencies+": 0}


def test_a_gate_waits_for_somebody() -> None:
    assert told(job((S.READY, 0), (S.SUCCEEDED, 4), kind=GATE), 99) == {"gate": 4}


def test_a_turn_waits_for_its_paused_actor() -> None:
    of = job((S.WAITING, 0), (S.READY, 4), (S.RUNNING, 4), options=Options(turn=True))
    assert told(of, 99) == {"paused_actor": 4}


def test_what_a_full_history_left_out_is_not_known() -> None:
    moves = [(S.READY, 0), (S.RUNNING, 1), (S.DELAYED, 2), (S.READY, 3), (S.RUNNING, 3)]
    late = [(S.READY if n % 2 else S.RUNNING, 100 + n) for n in range(HISTORY_LAST)]
    assert len(moves) == HISTORY_FIRST
    found = told(job(*moves, *late), 999)
    assert found == {"slot": 1 + HISTORY_LAST // 2, "backoff": 1, "unknown": 97}


def test_before_the_first_stay_of_a_full_list_is_not_known() -> None:
    stays = [Stay("a=1", at(10 + n), at(10.5 + n)) for n in range(MOST_STAYS)]
    one = job((S.READY, 0), (S.RUNNING, 10 + MOST_STAYS))
    assert told(one, 999, stays) == {"unknown": 10, "a=1": 25, "slot": 25}
    assert told(one, 999, stays[1:])["slot"] == 35.5


def test_all_causes_together_are_the_time_that_it_waited() -> None:
    one = job((S.WAITING, 0), (S.READY, 3), (S.RUNNING, 20), (S.READY, 21), (S.RUNNING, 30))
    stays = [Stay("a=1", at(4), at(11)), Stay("b=1", at(22), at(29))]
    pauses = [Pause(True, at(1), at(2)), Pause(False, at(10), at(24))]
    assert sum(told(one, 99, stays, *pauses).values()) == 3 + 17 + 9


def test_the_words_name_each_cause_and_the_sum() -> None:
    parts = (
        Waited(C.LIMIT, 9.1, "tenant=acme"),
        Waited(C.PAUSED_QUEUE, 3.0),
        Waited(C.SLOT, 2.1),
        Waited(C.DELAY, 0.0002),
    )
    assert waited_words(parts) == (
        "waited 14 s: 9.1 s for tenant=acme (limit), 3.0 s for a paused queue, "
        "2.1 s for a free slot"
    )
    assert worth_telling(parts)
    assert worth_telling(parts[3:]) == ""
    assert waited_words(parts[3:]) == ""
    assert waited_words([Waited(C.SLOT, 0.0, since=at(60))]) == (
        "waits for a free slot since 2030-01-01 00:01:00 UTC"
    )


def test_the_jobs_of_a_queue_wait_for_what_their_state_and_their_lane_tell() -> None:
    counts = {S.WAITING: 1, S.DELAYED: 2, S.READY: 5, S.RUNNING: 9, S.FAILED: 9}
    depths = [
        LaneDepth(lane_of("mail", "send", ""), counts, behind=3),
        LaneDepth(lane_of("mail", GATE, ""), {S.READY: 1}),
        LaneDepth(lane_of("held", "send", ""), {S.READY: 4}, paused=True, behind=1),
    ]
    assert waiting_now(depths) == {
        ("mail", C.DEPENDENCIES): 1,
        ("mail", C.DELAY): 2,
        ("mail", C.LIMIT): 3,
        ("mail", C.SLOT): 2,
        ("mail", C.GATE): 1,
        ("held", C.PAUSED_QUEUE): 4,
    }
    assert waited_in_words({"slot": 0.2, "limit": 90.0, "delay": 2.0, "gate": 1.5}) == (
        "1 min 30 s limit, 2.0 s delay"
    )
