"""What can be stored, and how what cannot is refused."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.errors import NotSerialisable, TooLarge
from longshore.payload.values import pack, pack_arguments, unpack

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(values)
def test_builtins_survive_the_trip(value: object) -> None:
    assert unpack(pack(value, "it")) == value


def test_a_dataclass_is_stored_as_a_map() -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    assert unpack(pack(Point(3), "it")) == {"x": 3}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"a": [1, math.nan]}, r"the args\['a'\]\[1\] is nan"),
        ([math.inf], r"the args\[0\] is inf"),
        ({1: "x"}, "has the key 1, which is int"),
        (2**63, "past 64 bits"),
        (2**70, "cannot be stored"),
        ([object()], "cannot be stored"),
        ("\ud800", "cannot be stored"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_place(value: object, names: str) -> None:
    with pytest.raises(NotSerialisable, match=names):
        pack(value, "the args")


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(NotSerialisable, match="cannot be stored"):
        pack(ring, "the args")


def test_depth_is_bounded() -> None:
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(NotSerialisable, match="nested more than 100 deep"):
        pack(deep, "the args")


def test_what_hides_in_a_dataclass_is_found() -> None:
    @dataclasses.dataclass
    class Point:
        x: float

    with pytest.raises(NotSerialisable, match=r"the args\['x'\] is nan"):
        pack(Point(math.nan), "the args")


def test_too_large_names_the_limit_and_the_way_out() -> None:
    with pytest.raises(TooLarge, match=r"max_value_bytes \(10\); keep large data in a file"):
        pack("x" * 100, "the args", limit=10)


@pytest.mark.parametrize("odd", [object(), [{"deep": object()}], 2**70, float("nan")])
def test_of_arguments_the_one_that_cannot_be_stored_is_named(odd: object) -> None:
    with pytest.raises(NotSerialisable, match=r"^job 'resize': argument 'path'"):
        pack_arguments({"width": 3, "path": odd}, "resize")


def test_what_can_be_stored_instead_is_listed() -> None:
    with pytest.raises(NotSerialisable, match=r"datetimes, .* UUIDs, enums, sets or Decimals"):
        pack(object(), "it")
