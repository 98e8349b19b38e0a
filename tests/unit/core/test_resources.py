"""What jobs take of machines: rounded shapes, how many fit, and what is said about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from longshore.core.lanes import lane_of, serves
from longshore.core.limits import check_submission
from longshore.core.resources import (
    amounts_of,
    as_given,
    checked,
    has,
    how_many,
    in_words,
    lacking,
    parse,
    shape_of,
    split,
    taken,
    with_shape,
)
from longshore.errors import InvalidInput
from longshore.model.worker import KindInfo, WorkerInfo
from longshore.testing.builders import a_job, new_id

GIB = 1024.0**3

needs = st.dictionaries(
    st.sampled_from(["cpu", "memory", "disk"]), st.floats(0.01, 2.0**50), max_size=3
) | st.dictionaries(st.sampled_from(["gpu", "licence"]), st.integers(0, 1000), max_size=2)


def test_a_shape_is_one_text_however_it_was_written() -> None:
    given = {"memory": "4g", "cpu": 2, "gpu": 1}
    assert shape_of(checked(given)) == "cpu=2;gpu=1;memory=4096m"
    assert shape_of(parse("gpu=1, memory=4096m,cpu=2.0")) == "cpu=2;gpu=1;memory=4096m"


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"cpu": 0.1}, "cpu=0.25"),
        ({"cpu": 4.1}, "cpu=5"),
        ({"memory": 1}, "memory=1m"),
        ({"memory": "4097m"}, "memory=5120m"),
        ({"memory": "4.5g"}, "memory=5120m"),
        ({"gpu": 0}, ""),
        ({}, ""),
    ],
)
def test_needs_are_rounded_up(given: dict[str, object], shape: str) -> None:
    assert shape_of(checked(given)) == shape


@given(needs)
def test_a_shape_has_room_for_what_it_was_made_of_and_is_its_own_shape(
    given: dict[str, float],
) -> None:
    amounts = checked({**given})
    shape = shape_of(amounts)
    rounded = amounts_of(shape)
    assert shape_of(rounded) == shape
    for name, amount in amounts.items():
        most = max(amount * 1.25 + 1, 1024.0**2) if name in ("memory", "disk") else amount + 1
        assert amount <= rounded.get(name, 0.0) <= most


@given(needs, st.integers(1, 50))
def test_as_many_fit_as_were_taken(given: dict[str, float], times: int) -> None:
    shape = shape_of(checked({**given}))
    if not shape:
        return
    total = {name: times * amount for name, amount in amounts_of(shape).items()}
    assert how_many(total, amounts_of(shape)) == times
    assert how_many(taken(total, shape, times), amounts_of(shape)) == 0
    assert taken(taken(total, shape, 3), shape, -3) == pytest.approx(total)


@given(needs)
def test_what_a_worker_is_given_is_read_back(given: dict[str, float]) -> None:
    amounts = checked({**given})
    assert parse(as_given(amounts)) == pytest.approx(amounts)


@pytest.mark.parametrize(
    ("given", "about"),
    [
        ({"CPU": 1}, "small letters"),
        ({"cpu": -1}, "give 0 to"),
        ({"cpu": float("nan")}, "cpu is nan"),
        ({"cpu": True}, "cpu is True"),
        ({"cpu": "2g"}, "cpu is '2g'"),
        ({"memory": "much"}, "memory is 'much'"),
        ({"gpu": 1.5}, "whole numbers"),
        ({f"r{n}": 1 for n in range(9)}, "9 resources"),
    ],
)
def test_what_is_no_amount_is_named(given: dict[str, object], about: str) -> None:
    with pytest.raises(InvalidInput, match=about):
        checked(given)


@pytest.mark.parametrize("text", ["cpu", "cpu=1,cpu=2", "=1"])
def test_a_text_that_names_no_amounts_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse(text)


def test_a_target_has_a_machine_and_a_shape() -> None:
    assert split(with_shape("linux-x86_64", "cpu=2")) == ("linux-x86_64", "cpu=2")
    assert split(with_shape("", "cpu=2")) == ("", "cpu=2")
    assert split("linux-x86_64") == ("linux-x86_64", "")


def a_worker(**resources: float) -> WorkerInfo:
    return WorkerInfo(id=new_id(), kinds={"train": KindInfo()}, target="big", resources=resources)


@pytest.mark.parametrize(
    ("target", "is_served"),
    [
        ("", True),
        (";cpu=2", True),
        ("big;cpu=2;gpu=1", True),
        (";cpu=5", False),
        ("small;cpu=2", False),
        (";licence=1", False),
    ],
)
def test_a_worker_serves_what_fits_on_it_when_it_is_empty(target: str, is_served: bool) -> None:
    assert serves(a_worker(cpu=4, gpu=1), lane_of("default", "train", target)) is is_served


def test_what_is_short_is_said_in_words() -> None:
    assert lacking({"cpu": 4, "memory": 2 * GIB}, "cpu=2;memory=4096m") == [
        "memory 4 GiB is needed, memory 2 GiB is there"
    ]
    assert in_words("cpu=0.5;gpu=1;memory=512m") == "cpu 0.5, gpu 1, memory 512 MiB"
    assert has({}, "")


@pytest.mark.parametrize(
    ("target", "resources", "about"),
    [
        ("big;cpu=2", "", "does not end with"),
        ("big", "cpu=2", "does not end with"),
        ("big;cpu=2.1", "cpu=2.1", "not as Longshore writes them: 'cpu=2.25'"),
        ("big;cpu", "cpu", "resources have 'cpu'"),
        ("lon g;cpu=2", "cpu=2", "has a character"),
    ],
)
def test_a_submit_whose_target_is_not_that_of_its_resources_is_refused(
    target: str, resources: str, about: str
) -> None:
    with pytest.raises(InvalidInput, match=about):
        check_submission(structs.replace(a_job(resources=resources), target=target))
