"""References to results in arguments of any bytes: none of them may break who reads them."""

from __future__ import annotations

import msgspec
import pytest

from longshore.errors import InvalidArguments, InvalidInput
from longshore.model.job import JobState, Options, Submission
from longshore.model.worker import KindInfo, Parameter
from longshore.payload.references import NodeResult, Reference, escaped, filled, references
from longshore.payload.schemas import check_arguments
from longshore.payload.values import pack, unpack
from longshore.testing.builders import new_id

RESULTS = {"a": [NodeResult(JobState.SUCCEEDED, 1, pack([7], "a result"))]}


@pytest.mark.parametrize(
    "args",
    [
        b"",
        b"\xc1",
        b"\xa1\xff",
        msgspec.msgpack.encode({1: Reference("a").as_value()}),
        b"\x91" * 600 + b"\xc0",
        b"\x91" * 100_000 + b"\xc0",
    ],
)
def test_odd_arguments_are_refused_and_break_nothing(args: bytes) -> None:
    with pytest.raises(InvalidInput):
        filled(args, RESULTS)


def test_undecodable_arguments_are_no_references() -> None:
    with pytest.raises(InvalidArguments, match="not msgpack"):
        references(b"\xc1")


def test_a_result_of_any_bytes_is_told() -> None:
    """As raw jobs have them."""
    raw = {"a": [NodeResult(JobState.SUCCEEDED, 1, b"\xc1")]}
    with pytest.raises(InvalidArguments, match="the result of 'a' is not msgpack"):
        filled(pack([Reference("a").as_value()], "args"), raw)


def test_what_is_escaped_is_filled_as_it_was() -> None:
    own = {"$result": {"job": "a"}, "$$x": [{"$": 1}], "there": Reference("a", (0,))}
    written = escaped(own)
    assert list(references(pack(written, "args"))) == [Reference("a", (0,))]
    assert unpack(filled(pack(written, "args"), RESULTS)) == {**own, "there": 7}


def test_what_stands_for_a_result_is_not_checked_against_what_workers_advertise() -> None:
    integer = '{"type":"integer"}'
    info = KindInfo(parameters=(Parameter("n", schema=integer), Parameter("m", schema=integer)))

    def check(**args: object) -> None:
        options = Options(references=True)
        check_arguments(Submission(new_id(), "k", pack(args, "args"), options=options), info)

    check(n=Reference("a").as_value(), m=1)
    with pytest.raises(InvalidArguments, match="argument 'm' expected int"):
        check(n=Reference("a").as_value(), m="x")
    with pytest.raises(InvalidArguments, match="needs argument 'm'"):
        check(n=Reference("a").as_value())


def test_the_results_of_a_map_are_a_list_in_order() -> None:
    done = [NodeResult(JobState.SUCCEEDED, 1, pack(n, "a result")) for n in (5, 6)]
    args = pack({"all": Reference("pages", is_map=True).as_value()}, "args")
    assert [one.wanted for one in references(args)] == ["pages/*"]
    assert unpack(filled(args, {"pages/*": done})) == {"all": [5, 6]}
    assert unpack(filled(args, {})) == {"all": []}


def test_the_results_of_a_map_name_an_element_without_one() -> None:
    done = NodeResult(JobState.SUCCEEDED, 1, pack(5, "a result"))
    args = pack({"all": Reference("pages", is_map=True).as_value()}, "args")
    with pytest.raises(InvalidArguments, match="of 'pages/1', which has none: it is failed"):
        filled(args, {"pages/*": [done, NodeResult(JobState.FAILED, 0, None)]})


@pytest.mark.parametrize("inner", [{}, {"map": 1}, {"map": "a", "path": []}, "a"])
def test_a_malformed_reference_to_a_map_is_told(inner: object) -> None:
    with pytest.raises(InvalidArguments, match="not a reference to the results of a map"):
        references(pack({"all": {"$results": inner}}, "args"))
