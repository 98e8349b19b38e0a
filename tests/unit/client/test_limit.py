"""Limits as an app declares them, and the keys that its jobs then count for."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest
from msgspec import structs

from longshore import App, Limit
from longshore.client.actor_decorator import actor_terms
from longshore.client.described import described_limits
from longshore.client.kind import Terms
from longshore.core.worker_limits import check_worker
from longshore.errors import AppError, InvalidInput
from longshore.model.limits import JobLimit, Rate
from longshore.model.worker import KindInfo
from longshore.payload.maps import pattern_of, read_map, samples
from longshore.payload.values import pack
from longshore.testing.builders import a_worker

app = App("limits")


@app.job(limit=Limit(3, key="tenant"))
async def report(tenant: str | int | bool, day: str = "monday") -> None: ...


def limits_of(kind: Any, *args: object) -> tuple[JobLimit, ...]:
    found: tuple[JobLimit, ...] = kind.call(*args).submission.options.limits
    return found


def test_a_key_is_the_value_of_a_parameter() -> None:
    assert limits_of(report, "acme") == (JobLimit("tenant=acme", 3),)
    assert limits_of(report, 7) == (JobLimit("tenant=7", 3),)
    assert limits_of(report, True) == (JobLimit("tenant=true", 3),)


def test_a_key_may_be_given_whole_or_made_by_a_function() -> None:
    rate = Limit(key="api=maps", rate="100/min", burst=20, units=5)
    made = Limit(1, key=lambda given: f"day={given['day']}")
    kind = report.options(limit=[rate, made])
    assert limits_of(kind, "acme", "friday") == (
        JobLimit("api=maps", None, Rate(100, 60.0, 20), 5),
        JobLimit("day=friday", 1),
    )


def test_a_submit_may_have_another_limit_or_none() -> None:
    assert limits_of(report.options(limit=Limit(9, key="tenant")), "b") == (
        JobLimit("tenant=b", 9),
    )
    assert limits_of(report.options(limit=None), "b") == ()


def test_a_burst_is_at_least_what_a_job_takes() -> None:
    assert Limit(key="t=a", rate="5/s", units=3).declared.rate == Rate(5, 1.0, 3)


def test_submits_by_name_have_what_workers_advertise() -> None:
    info = KindInfo(terms=Terms().but(limit=Limit(3, key="tenant")).advertised())
    terms = Terms.of_kind(info)
    job = terms.submission(report.call("x").id, "report", pack({"tenant": "acme"}, "arguments"))
    assert job.options.limits == (JobLimit("tenant=acme", 3),)


def by_name(terms: Terms) -> Terms:
    """What a submit by name knows of these terms."""
    info = KindInfo(terms=terms.advertised())
    check_worker(structs.replace(a_worker(), kinds={"mail": info}, pools={"coroutine": 1}))
    return Terms.of_kind(info)


def test_a_submit_by_name_gives_the_keys_that_functions_make() -> None:
    day, region = Limit(1, key=lambda given: "day=a"), Limit(2, key=lambda given: "region=b")
    args, told = pack({"tenant": "acme"}, "arguments"), by_name(Terms().but(limit=[day, region]))
    with pytest.raises(InvalidInput, match=r"'mail' has a limit \(at most 1 at once\) whose key a"):
        told.submission(UUID(int=1), "mail", args)
    with pytest.raises(InvalidInput, match="key is a function"):
        told.pattern(UUID(int=1), "mail", args, "day")
    given = told.but(limit=Limit(1, key="day=a")).submission(UUID(int=1), "mail", args)
    assert given.options.limits == (JobLimit("day=a", 1),)
    assert told.but(limit=None).submission(UUID(int=1), "mail", args).options.limits == ()


def test_a_raw_job_counts_for_keys_that_are_no_parameter() -> None:
    told = by_name(Terms().but(limit=Limit(3)))
    job = told.submission(UUID(int=1), "mail", b"hello", raw=True)
    assert (job.options.limits, job.options.raw) == ((JobLimit("kind=mail", 3),), True)
    told = by_name(Terms().but(limit=Limit(3, key="tenant")))
    with pytest.raises(InvalidInput, match="parameter 'tenant'"):
        told.submission(UUID(int=1), "mail", b"hello", raw=True)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"key": "not a name"}, "name=value"),
        ({"key": "t=a", "burst": 3}, "no rate"),
        ({"key": "t=a", "units": 0}, "at least 1"),
        ({"key": "t=a", "concurrency": -1}, "concurrency"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(given: dict[str, Any], word: str) -> None:
    with pytest.raises(AppError, match=word):
        Limit(**given)


@pytest.mark.parametrize(
    ("limit", "word"),
    [
        (Limit(1, key="missing"), "was not given"),
        (Limit(1, key=lambda given: "nothing"), "name=value"),
        ([Limit(1, key="t=a"), Limit(2, key="t=a")], "twice"),
    ],
)
def test_a_submit_without_its_key_is_refused(limit: Any, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        report.options(limit=limit).call("acme")


def test_something_else_is_no_limit() -> None:
    with pytest.raises(InvalidInput, match="give Limit"):
        report.options(limit=3)  # type: ignore[arg-type]


def pattern_limits(kind: Any, over: object, **constants: object) -> tuple[JobLimit, ...]:
    call = kind.map_call(over, constants)
    limits: tuple[JobLimit, ...] = read_map(call.submission.args)[1].job.options.limits
    return limits


def test_a_map_leaves_a_key_to_its_elements_or_has_a_whole_one() -> None:
    assert pattern_limits(report, ["a", "b"]) == (JobLimit("tenant", 3),)
    by_day = report.options(limit=Limit(3, key="day"))
    assert pattern_limits(by_day, ["a"], day="monday") == (JobLimit("day=monday", 3),)
    with pytest.raises(InvalidInput, match="was not given"):
        pattern_limits(by_day, ["a"])
    with pytest.raises(InvalidInput, match="key is a function"):
        pattern_limits(report.options(limit=Limit(1, key=lambda given: "t=a")), ["a"])


def test_elements_have_keys_of_their_own_also_before_they_are_known() -> None:
    call = report.map_call(["a", True], {})
    found = samples(call.submission, 9)
    assert [one.options.limits[0].key for one in found] == ["tenant=a", "tenant=true"]
    assert pattern_of(call.submission).options.limits[0].key == "tenant=any"


def test_a_key_is_never_a_result_that_is_still_to_come() -> None:
    other, untyped = app.group("g").add(report.call("acme")), cast("Any", report)
    with pytest.raises(InvalidInput, match="a result to come"):
        untyped.call(other.result)


def test_without_a_key_all_jobs_of_the_kind_count() -> None:
    whole = report.options(limit=Limit(3))
    assert limits_of(whole, "acme") == (JobLimit("kind=report", 3),)
    info = KindInfo(terms=Terms().but(limit=Limit(3)).advertised())
    job = Terms.of_kind(info).submission(report.call("x").id, "mail", pack({}, "arguments"))
    assert job.options.limits == (JobLimit("kind=mail", 3),)
    check_worker(structs.replace(a_worker(), kinds={"mail": info}, pools={"coroutine": 1}))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (3, [Limit(3)]),
        (None, []),
        ({"concurrency": 2, "key": "tenant"}, [Limit(2, key="tenant")]),
        (
            [{"key": "api=maps", "rate": "9/s", "burst": 2, "units": 2}, 1],
            [Limit(key="api=maps", rate="9/s", burst=2, units=2), Limit(1)],
        ),
        ({"concurrency": 1, "full": "drop_newest"}, [Limit(1, full="drop_newest")]),
    ],
)
def test_a_file_describes_limits(given: object, found: list[Limit]) -> None:
    assert list(described_limits(given)) == found


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("tenant", "give a number"),
        (True, "give a number"),
        ({"kee": "tenant"}, "some of concurrency, key"),
        ({"concurrency": "3"}, "a whole number"),
        ({"key": 3}, "must be text"),
        ({"burst": 3}, "no rate"),
        ({"rate": "3"}, "is no rate"),
        ({"full": "drop"}, "it is one of wait"),
        (-1, "concurrency"),
    ],
)
def test_what_a_file_cannot_describe_is_refused(given: object, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        described_limits(given)


def test_turns_of_actors_count_for_a_whole_key_or_for_their_type() -> None:
    limits = [Limit(1, key="t=a"), Limit(2)]
    found = actor_terms("Counter", Terms().but(limit=limits)).options.limits
    assert found == (JobLimit("t=a", 1), JobLimit("actor=Counter", 2))


@pytest.mark.parametrize("key", ["tenant", lambda given: "t=a"])
def test_turns_of_actors_have_no_key_of_a_parameter(key: Any) -> None:
    decorator: Any = app.actor
    with pytest.raises(AppError, match="actor 'Counter': turns have no parameters"):
        decorator(limit=Limit(1, key=key))(type("Counter", (), {}))
