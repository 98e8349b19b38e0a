"""Arguments against what workers advertise."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from longshore.errors import InvalidArguments
from longshore.model.job import Options, Submission
from longshore.model.worker import KindInfo, Parameter
from longshore.payload.jsonschema import MAX_SCHEMA_BYTES
from longshore.payload.schemas import MAX_CHECKED_BYTES, check_arguments
from longshore.payload.values import pack

FETCH = KindInfo(parameters=(Parameter("url"), Parameter("tries", required=False)))


def job(args: object, **more: object) -> Submission:
    return Submission(UUID(int=1), "fetch", pack(args, "args"), **more)  # type: ignore[arg-type]


def test_fitting_arguments_pass() -> None:
    check_arguments(job({"url": "x"}), FETCH)
    check_arguments(job({"url": "x", "tries": 3}), FETCH)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "job 'fetch' needs argument 'url'; it takes 'url', 'tries' \\(optional\\)"),
        ({"url": "x", "trys": 3}, "no parameter 'trys' \\(nearest: 'tries'\\)"),
        ([1], "not a map by parameter name"),
    ],
)
def test_wrong_arguments_are_named(args: object, message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        check_arguments(job(args), FETCH)


def test_raw_jobs_and_open_kinds_take_anything() -> None:
    check_arguments(job({"any": 1}), KindInfo())
    check_arguments(Submission(UUID(int=1), "raw", b"\xff", options=Options(raw=True)), FETCH)


# types


def one(schema: str) -> KindInfo:
    """A kind with one parameter that is described so."""
    return KindInfo(parameters=(Parameter("url", schema=schema),))


INTEGER, TEXT = '{"type":"integer"}', '{"type":"string"}'
BOX = (
    '{"type":"object","properties":{"x y":{"type":"integer"},"n":{"type":"string"}},'
    '"required":["x y"]}'
)
WHEN = '{"type":"string","format":"date-time"}'
BYTES = '{"type":"string","contentEncoding":"base64"}'


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TEXT, "a"),
        (INTEGER, 5),
        ('{"type":"number"}', 5),
        ('{"type":"boolean"}', True),
        (WHEN, datetime(2030, 1, 1, tzinfo=UTC)),
        (WHEN, "2030-01-01T00:00:00Z"),
        (BYTES, b"\xff"),
        # As the command line sends it, and as the worker would take it.
        (BYTES, "/w=="),
        ('{"type":"string","format":"uuid"}', UUID(int=5)),
        ('{"type":"string","format":"decimal"}', 1.5),
        ('{"enum":["a",2]}', 2),
        ('{"type":"array","items":{"type":"integer"}}', [1, 2]),
        ('{"type":"object","additionalProperties":{"type":"integer"}}', {"a": 1}),
        (BOX, {"x y": 1}),
        (BOX, {"x y": 1, "n": "a", "more": None}),
        ('{"anyOf":[{"type":"string"},{"type":"null"}]}', None),
        # What is not understood lets everything pass.
        ("", 5),
        ('{"type":"string","minLength":9}', "a"),
        ('{"$ref":"#/x"}', 5),
        ('{"type":["string","null"]}', 5),
        ('{"anyOf":[{"type":"object","properties":{}},{"$ref":"#/x"}]}', 5),
        ('{"enum":[[1]]}', 5),
        ('{"enum":5}', 5),
        ("true", 5),
        ("{", 5),
        (INTEGER + " " * MAX_SCHEMA_BYTES, "text"),
    ],
)
def test_a_value_of_the_type_passes(schema: str, value: object) -> None:
    check_arguments(job({"url": value}), one(schema))


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (TEXT, 5, "expected str, got int"),
        (INTEGER, "5", "expected int, got str"),
        (INTEGER, None, "expected int, got null"),
        (WHEN, "soon", "invalid RFC3339 encoded datetime"),
        (BYTES, 5, "expected bytes, got int"),
        ('{"enum":["a","b"]}', "c", "invalid enum value 'c'"),
        (f'{{"type":"array","items":{INTEGER}}}', [1, "a"], r"expected int, got str \(at \[1\]\)"),
        (BOX, {"x y": "1"}, r"expected int, got str \(at \.x y\)"),
        (BOX, {}, "object missing required field x y"),
        (BOX, [1], "expected object, got array"),
        (f'{{"anyOf":[{TEXT},{{"type":"null"}}]}}', 5, r"expected str \| null, got int"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(
    schema: str, value: object, message: str
) -> None:
    with pytest.raises(InvalidArguments, match=f"^job 'fetch': argument 'url' {message}"):
        check_arguments(job({"url": value}), one(schema))


def test_of_large_arguments_only_the_names_are_checked() -> None:
    large = {"url": ["x" * MAX_CHECKED_BYTES]}
    check_arguments(job(large), one(TEXT))
    with pytest.raises(InvalidArguments, match="has no parameter 'more'"):
        check_arguments(job({**large, "more": 1}), one(TEXT))


def test_parameters_of_any_name_are_checked() -> None:
    odd = KindInfo(parameters=(Parameter('a"b', schema=TEXT), Parameter("c-d", schema=INTEGER)))
    check_arguments(job({'a"b': "x", "c-d": 1}), odd)
    with pytest.raises(InvalidArguments, match="argument 'c-d' expected int, got str"):
        check_arguments(job({'a"b': "x", "c-d": "1"}), odd)


def test_junk_is_refused_as_junk() -> None:
    for junk in (b"", b"\xc1", b"\x81\xa1\xff\x01", b"\x91" * 5000):
        broken = Submission(UUID(int=1), "fetch", junk)
        with pytest.raises(InvalidArguments, match="not a map by parameter name"):
            check_arguments(broken, one(TEXT))
    inside = Submission(UUID(int=1), "fetch", b"\x81\xa3url\xa1\xff")
    with pytest.raises(InvalidArguments, match="not a map by parameter name"):
        check_arguments(inside, one(TEXT))
