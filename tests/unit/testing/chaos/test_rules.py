"""Each rule of the checker is kept by a good history, and seen to fail on a bad one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from longshore.testing.chaos import history as h
from longshore.testing.chaos.checker import Verdict, judge
from longshore.testing.chaos.rules import RULES

History = list[h.AnyEvent]


def ran(
    job: str,
    at: float,
    until: float,
    *,
    attempt: str = "1",
    worker: str = "worker-1.1",
    parent: str = "",
    keys: tuple[str, ...] = (),
    sort: str = "step",
) -> History:
    """A body, with a sign of life every tenth of a second."""
    names = {"job": job, "attempt": attempt}
    began = h.Began(at=at, worker=worker, sort=sort, parent=parent, keys=keys, **names)
    beats = [h.Beat(at=at + n / 10, **names) for n in range(1, int((until - at) * 10))]
    return [began, *beats, h.Over(at=until, **names)]


def ended(job: str, state: str = "succeeded", attempt: str = "1", **more: Any) -> History:
    """What a client and the store say of it."""
    if state != "succeeded":
        attempt = ""
    found = h.Found(at=90, job=job, kind="step", state=state, attempt=attempt, ends=(state,))
    seen = h.Seen(at=50, job=job, state=state, attempt=attempt)
    return [seen, structs.replace(found, **more)]


def accepted(job: str, **more: Any) -> History:
    called = structs.replace(h.Called(at=1, job=job, sort="async"), **more)
    return [called, h.Accepted(at=2, job=job)]


def good() -> History:
    """A little of all, as it should be."""
    return [
        h.Phase(at=0.5, name="storm"),
        *accepted("a"),
        *ran("a", 3, 4),
        *ended("a"),
        *accepted("b", after=("a",), sort="group", children=1),
        *ran("b", 4.1, 5),
        *ended("b"),
        *ran("b1", 6, 7, parent="b"),
        *ended("b1"),
        *accepted("c", after=("b",), sort="group", callback=True, files=True, sends_to="alba"),
        *ran("c", 8, 9),
        *ended("c"),
        h.Told(at=10, job="c", state="succeeded"),
        *accepted("d", ends=("failed",)),
        *ran("d", 3, 3.5),
        *ended("d", "failed"),
        *accepted("e", after=("d",), ends=("dependency_failed",)),
        *ended("e", "dependency_failed"),
        h.Sent(at=3, actor="alba", sender="client-1", n=1),
        h.Sent(at=4, actor="alba", sender="client-1", n=2),
        h.Phase(at=60, name="calm"),
        h.Phase(at=80, name="read"),
        h.Applied(
            at=91, actor="alba", entries=(("client-1", 1, ""), ("c", 1, ""), ("client-1", 2, ""))
        ),
        h.Versions(at=91, jobs=("c",)),
        fires(100.0, 101.0, 102.0),
    ]


def fires(*times: float, **more: Any) -> h.Fires:
    made = tuple((at, "submitted", 1, f"job of {at}", "succeeded") for at in times)
    return structs.replace(h.Fires(at=92, schedule="ticks", every_s=1.0, fires=made), **more)


def limited(*workers: str) -> History:
    """Bodies of one tank that all run from 20 to 21."""
    return [
        event
        for n, worker in enumerate(workers)
        for event in (
            *accepted(f"t{n}"),
            *ran(f"t{n}", 20, 21, worker=worker, keys=("tank=north",)),
            *ended(f"t{n}"),
        )
    ]


def without(what: type[h.Event], job: str) -> History:
    return [e for e in good() if not (isinstance(e, what) and getattr(e, "job", "") == job)]


def instead(event: h.AnyEvent) -> History:
    """The good history with another one of this sort, of this actor or schedule."""
    return [e for e in good() if type(e) is not type(event)] + [event]


def entries(*those: tuple[str, int]) -> History:
    made = tuple((sender, n, "") for sender, n in those)
    return instead(h.Applied(at=91, actor="alba", entries=made))


def found(job: str, state: str, **more: Any) -> History:
    """The good history, in which the store says something else of a job."""
    return without(h.Found, job) + ended(job, state, **more)[1:]


def began_again(sort: str = "step") -> History:
    """A job whose first attempt breaks off at 23 s, and whose second one begins then."""
    first = ran("g", 15, 23, attempt="1", sort=sort)[:-1]
    again = ran("g", 30, 31, attempt="2", worker="worker-2.1", sort=sort)
    return [*accepted("g"), *first, *again, *ended("g", attempt="2")]


def away(seconds: float = 5.0) -> h.StoreAway:
    """The cluster accepts nothing until 25 s."""
    return h.StoreAway(at=25, seconds=seconds)


BAD: dict[str, tuple[str, Callable[[], History]]] = {
    "an accepted job is gone": ("lost", lambda: [*without(h.Found, "a"), h.Missing(job="a")]),
    "an accepted job was not read": ("lost", lambda: without(h.Found, "d")),
    "a child is gone": ("lost", lambda: without(h.Found, "b1")),
    "a job still runs": ("not finished", lambda: found("a", "running", ends=())),
    "jobs were left": ("not finished", lambda: [*good(), h.Left(at=70, jobs=2)]),
    "a job failed": ("wrong end", lambda: found("a", "failed")),
    "a failure succeeded": ("wrong end", lambda: found("d", "succeeded", attempt="")),
    "two ends": ("recorded twice", lambda: found("a", "succeeded", ends=("succeeded",) * 2)),
    "a client heard another outcome": (
        "recorded twice",
        lambda: [*good(), h.Seen(at=55, job="a", state="failed")],
    ),
    "a client heard of another attempt": (
        "recorded twice",
        lambda: [*good(), h.Seen(at=55, job="a", state="succeeded", attempt="2")],
    ),
    "no such body": ("success without a body", lambda: without(h.Began, "a")),
    "the body never ended": ("success without a body", lambda: without(h.Over, "a")),
    "a child is doubled": (
        "children",
        lambda: [*good(), *ran("b2", 6, 7, parent="b"), *ended("b2")],
    ),
    "a child never was": (
        "children",
        lambda: [e for e in good() if getattr(e, "job", "") != "b1"],
    ),
    "two bodies of a job": (
        "two owners",
        lambda: [*good(), *ran("a", 3.5, 3.9, attempt="2", worker="worker-2.1")],
    ),
    "began before its dependency ended": (
        "too early",
        lambda: [*good(), *ran("b", 3.9, 4.05, attempt="0")],
    ),
    "began before what its dependency added": (
        "too early",
        lambda: [*good(), *ran("c", 6.5, 6.9, attempt="0")],
    ),
    "ran though its dependency failed": ("too early", lambda: [*good(), *ran("e", 5, 6)]),
    "a message is lost": ("messages", lambda: entries(("c", 1), ("client-1", 2))),
    "the last message is lost": ("messages", lambda: entries(("c", 1), ("client-1", 1))),
    "a message is doubled": (
        "messages",
        lambda: entries(("client-1", 1), ("client-1", 1), ("c", 1), ("client-1", 2)),
    ),
    "messages are out of order": (
        "messages",
        lambda: entries(("client-1", 2), ("client-1", 1), ("c", 1)),
    ),
    "the message of a job is lost": ("messages", lambda: entries(("client-1", 1), ("client-1", 2))),
    "the message of a failed job": (
        "messages",
        lambda: [
            *good(),
            *accepted("f", ends=("failed",), sends_to="brig"),
            *ended("f", "failed"),
            h.Applied(at=91, actor="brig", entries=(("f", 1, ""),)),
        ],
    ),
    "a forwarded message is lost": (
        "messages",
        lambda: [*good(), h.Applied(at=91, actor="brig", entries=(("client-2", 1, "alba"),))],
    ),
    "three of a tank": (
        "limit exceeded",
        lambda: good() + limited("worker-1.1", "worker-2.1", "worker-1.1"),
    ),
    "a nominal time is missing": ("nominal times", lambda: instead(fires(100.0, 102.0))),
    "a nominal time is skipped": (
        "nominal times",
        lambda: instead(fires(100.0, fires=((100.0, "skipped", 1, "", ""),))),
    ),
    "a run has no outcome": (
        "nominal times",
        lambda: instead(fires(100.0, fires=((100.0, "submitted", 1, "job", ""),))),
    ),
    "one job for two times": (
        "nominal times",
        lambda: instead(
            fires(
                fires=(
                    (100.0, "submitted", 1, "job", "succeeded"),
                    (101.0, "submitted", 1, "job", "succeeded"),
                )
            )
        ),
    ),
    "nobody was called": ("callbacks", lambda: without(h.Told, "c")),
    "another end was told": (
        "callbacks",
        lambda: [*good(), h.Told(at=11, job="c", state="failed")],
    ),
    "published nothing": ("versions", lambda: instead(h.Versions(at=91, jobs=()))),
    "published twice": ("versions", lambda: instead(h.Versions(at=91, jobs=("c", "c")))),
    "nothing went on long after the cluster did": (
        "away too long",
        lambda: [*good(), h.StoreAway(at=20, seconds=6)],
    ),
    "a running job began again in a short outage": (
        "given up",
        lambda: [*good(), *began_again(), h.Lease(at=0.1, seconds=45), away()],
    ),
    "refused": ("refused", lambda: [*good(), h.Refused(at=5, subject="a", why="conflict")]),
}


def judged(events: History) -> Verdict:
    return judge(sorted(events, key=lambda event: event.at))


def test_a_good_history_breaks_no_rule() -> None:
    verdict = judged(good())
    assert verdict.broken == ()
    assert verdict.is_kept
    assert (verdict.accepted, verdict.finished, verdict.repeated) == (5, 5, 0)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_history_breaks_its_rule(case: str) -> None:
    rule, make = BAD[case]
    verdict = judged(make())
    assert not verdict.is_kept
    assert verdict.counts[rule] > 0, verdict.broken


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in BAD.values()} == set(RULES)


def heard(*times: float) -> History:
    """Outcomes that clients heard of in so many moments."""
    made = [(f"k{at}", at) for at in times]
    return [
        event
        for job, at in made
        for event in [*accepted(job), *ran(job, at - 0.5, at), *ended(job)[1:], seen(job, at)]
    ]


def seen(job: str, at: float) -> h.Seen:
    return h.Seen(at=at, job=job, state="succeeded", attempt="1")


def test_longshore_may_be_away_for_as_long_as_the_cluster_and_a_few_seconds() -> None:
    often = [float(at) for at in range(5, 60, 4) if not 20 <= at <= 25]
    verdict = judged([*good(), *heard(*often), away()])
    assert verdict.counts["away too long"] == 0
    assert (verdict.store_away_s, round(verdict.late_s, 1)) == (5.0, 7.0)


def test_a_job_that_runs_through_an_outage_as_long_as_a_lease_may_begin_again() -> None:
    long = h.StoreAway(at=25, seconds=20)
    lease = h.Lease(at=0.1, seconds=30)
    assert judged([*good(), *began_again(), lease, long]).counts["given up"] == 0
    assert judged([*good(), *began_again("raw"), lease, away()]).counts["given up"] == 0


def test_times_that_the_pause_of_a_schedule_skips_need_no_run() -> None:
    late = (*fires(100.0).fires, (101.0, h.PAUSED, 1, "", ""))
    assert judged(instead(fires(fires=late, paused_at=101.5))).is_kept
    assert not judged(instead(fires(fires=late))).is_kept


def twice(*faults: h.AnyEvent, sort: str = "step", worker: str = "worker-2.1") -> Verdict:
    """Two bodies of a job at once, the first in `worker-1.1`."""
    extra = [
        *accepted("x"),
        *ran("x", 20, 22, attempt="1", sort=sort),
        *ran("x", 21, 23, attempt="2", worker=worker),
        *ended("x", attempt="2"),
    ]
    return judged([*good(), *extra, *faults])


def struck(deed: str, worker: str = "worker-1.1", at: float = 20.2) -> h.Struck:
    return h.Struck(at=at, fault=1, deed=deed, whom=worker.partition(".")[0], worker=worker)


EXPLAINED: dict[str, Callable[[], Verdict]] = {
    "a frozen worker": lambda: twice(struck("freeze"), h.Healed(at=21.5, fault=1)),
    "a worker killed a moment ago": lambda: twice(struck("kill", at=21.4)),
    "a plain worker": lambda: twice(sort="raw"),
    "a machine that stood still": lambda: twice(h.Hiccup(at=21, seconds=0.5)),
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_an_overlap_that_nobody_could_stop_is_explained(case: str) -> None:
    verdict = EXPLAINED[case]()
    assert verdict.broken == ()
    assert len(verdict.explained) == 1
    assert verdict.repeated == 1


UNEXPLAINED: dict[str, Callable[[], Verdict]] = {
    "another worker was frozen": lambda: twice(
        struck("freeze", "worker-3.1"), h.Healed(at=21.5, fault=1)
    ),
    "it was frozen long before": lambda: twice(struck("freeze", at=5), h.Healed(at=6, fault=1)),
    "it was killed long before": lambda: twice(struck("kill", at=20.1)),
    "its dispatcher was killed": lambda: twice(struck("kill", "dispatcher-1.1")),
}


@pytest.mark.parametrize("case", UNEXPLAINED)
def test_a_fault_that_did_not_strike_it_explains_no_overlap(case: str) -> None:
    assert UNEXPLAINED[case]().counts["two owners"] == 1


def test_a_frozen_body_does_not_count_for_its_limit() -> None:
    frozen: History = [struck("freeze", "worker-3.1"), h.Healed(at=20.8, fault=1)]
    verdict = judged(good() + limited("worker-1.1", "worker-2.1", "worker-3.1") + frozen)
    assert verdict.broken == ()
    assert [one.subject for one in verdict.explained] == ["tank=north"]


def test_a_verdict_says_how_full_keys_were() -> None:
    """Otherwise a run whose limits were never reached would look as good."""
    assert judged(good() + limited("worker-1.1", "worker-2.1")).at_once["tank=north"] == 2
    assert judged(good() + limited("worker-1.1")).at_once["tank=north"] == 1
