"""Arguments are bound by name and checked by annotation, at both ends; types survive the trip."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pytest

from longshore import Context
from longshore.client.signature import Signature
from longshore.errors import AppError, InvalidArguments, InvalidInput, NotSerialisable
from longshore.model.worker import Parameter
from longshore.payload import values

if TYPE_CHECKING:
    from nowhere import Unresolvable  # type: ignore[import-not-found]


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass
class Other:
    z: int


class Size(TypedDict):
    width: int


class Place(NamedTuple):
    row: int
    slot: int


Weight = NewType("Weight", int)


class Page(msgspec.Struct):
    url: str
    at: datetime


class Opaque:
    """A type msgspec knows nothing of."""


def fetch(url: str, tries: int = 3, *, deep: bool = False) -> str:
    return url


SIGNATURE = Signature("fetch", fetch)


def packed(*args: object, **kwargs: object) -> object:
    return values.unpack(SIGNATURE.pack(args, kwargs))


def test_positional_arguments_are_bound_to_their_names_and_defaults_left_out() -> None:
    assert packed("http://a") == {"url": "http://a"}
    assert packed("http://a", 5, deep=True) == {"url": "http://a", "tries": 5, "deep": True}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "job 'fetch': missing a required argument: 'url'"),
        (("a",), {"url": "b"}, "job 'fetch': multiple values for argument 'url'"),
        (("a",), {"speed": 1}, "job 'fetch': got an unexpected keyword argument 'speed'"),
        (("a", 1, True), {}, "job 'fetch': too many positional arguments"),
        (("a", "b"), {}, "job 'fetch': argument 'tries' expected int, got str"),
        ((b"a",), {}, "job 'fetch': argument 'url' expected str, got bytes"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    args: tuple[object, ...], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        SIGNATURE.pack(args, kwargs)


def test_a_binding_error_says_what_the_job_takes() -> None:
    with pytest.raises(InvalidArguments, match=re.escape("(url: str, tries: int = 3, *, deep:")):
        SIGNATURE.pack((), {})


def test_a_value_that_cannot_be_stored_is_refused_with_its_place() -> None:
    with pytest.raises(NotSerialisable, match="NaN"):
        SIGNATURE.pack((float("nan"),), {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "job 'fetch': missing a required argument: 'url'"),
        ({"url": "a", "speed": 1}, "job 'fetch': got an unexpected argument 'speed'"),
        ({"url": 1}, "job 'fetch': argument 'url' expected str, got int"),
        ([1], "job 'fetch': its arguments are a list, not a map by name"),
    ],
)
def test_the_worker_refuses_what_does_not_fit_by_name(given: object, message: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        SIGNATURE.bind(msgspec.msgpack.encode(given))


def test_the_worker_refuses_bytes_that_are_no_arguments() -> None:
    with pytest.raises(InvalidArguments, match="are not msgpack"):
        SIGNATURE.bind(b"\xc1")


VALUES: list[tuple[Any, Any]] = [
    (Point, Point(1)),
    (Page, Page("http://a", datetime(2030, 1, 1, tzinfo=UTC))),
    (datetime, datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)),
    (datetime, datetime(2030, 1, 1, 12, 30)),
    (date, date(2030, 1, 1)),
    (timedelta, timedelta(hours=1, microseconds=5)),
    (UUID, UUID(int=5)),
    (Colour, Colour.RED),
    (bytes, b"\x00\xff"),
    (Decimal, Decimal("1.10")),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
    (dict[str, list[Point]], {"a": [Point(1, 2.0)]}),
    (Point | None, None),
    (Point | None, Point(2)),
    (list[Colour], [Colour.RED]),
    (Literal["a", "b"], "a"),
    (int | str, "x"),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=lambda part: repr(part)[:40])
def test_a_value_comes_back_as_what_it_was_annotated_as(annotation: Any, value: Any) -> None:
    def job(value: Any) -> Any:
        return value

    job.__annotations__ = {"value": annotation, "return": annotation}
    signature = Signature("job", job)
    assert signature.bind(signature.pack((value,), {})) == {"value": value}
    assert signature.unpack_result(values.pack(value, "it")) == value


def test_an_error_inside_a_value_says_where() -> None:
    def job(points: list[Point]) -> None: ...

    message = "job 'job': argument 'points' expected int, got str (at [0].x)"
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        Signature("job", job).pack(([{"x": "a"}],), {})


def test_bounds_in_annotations_are_kept() -> None:
    def job(size: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    with pytest.raises(InvalidArguments, match="argument 'size' expected int >= 1"):
        Signature("job", job).pack((0,), {})


def test_what_msgspec_does_not_know_passes_unchecked() -> None:
    def job(a: Opaque, b: list[Opaque], c: Unresolvable, d, e: int = 1) -> Opaque:  # type: ignore[no-untyped-def]
        return a

    signature = Signature("job", job)
    given = {"a": {"x": 1}, "b": [2], "c": 3, "d": "4"}
    assert signature.bind(signature.pack((), given)) == given
    assert signature.unpack_result(values.pack({"x": 1}, "it")) == {"x": 1}
    with pytest.raises(InvalidArguments, match="argument 'e' expected int, got str"):
        signature.pack((), {**given, "e": "5"})


def test_keyword_arguments_of_any_name_are_taken_and_checked() -> None:
    def job(first: int, **rest: float) -> None: ...

    signature = Signature("job", job)
    assert signature.bind(signature.pack((1,), {"a": 2})) == {"first": 1, "a": 2.0}
    assert signature.parameters() is None
    with pytest.raises(InvalidArguments, match="argument 'a' expected float, got str"):
        signature.pack((1,), {"a": "b"})


def test_a_context_is_not_an_argument() -> None:
    def job(ctx: Context, url: str) -> None: ...

    signature = Signature("job", job)
    assert signature.takes_context
    assert signature.bind(signature.pack(("a",), {})) == {"url": "a"}
    assert signature.parameters() == (Parameter("url", True, "str", '{"type":"string"}'),)


def test_a_context_cannot_be_given_by_the_submitter() -> None:
    def job(ctx: Context, **rest: str) -> None: ...

    signature = Signature("job", job)
    with pytest.raises(InvalidArguments, match="'ctx' is given by the worker"):
        signature.pack((), {"ctx": "mine"})
    with pytest.raises(InvalidArguments, match="unexpected argument 'ctx'"):
        signature.bind(values.pack({"ctx": "mine"}, "it"))


def test_a_parameter_named_ctx_of_another_type_is_an_argument() -> None:
    def job(ctx: str) -> None: ...

    assert Signature("job", job).bind(values.pack({"ctx": "a"}, "it")) == {"ctx": "a"}


def test_a_context_under_another_name_is_refused() -> None:
    def job(context: Context) -> None: ...

    with pytest.raises(AppError, match=r"'context' is a longshore\.Context; name it ctx"):
        Signature("job", job)


def test_parameters_are_advertised_with_their_types() -> None:
    assert SIGNATURE.parameters() == (
        Parameter("url", True, "str", '{"type":"string"}'),
        Parameter("tries", False, "int", '{"type":"integer"}'),
        Parameter("deep", False, "bool", '{"type":"boolean"}'),
    )


def test_parameters_that_cannot_be_given_by_name_are_refused() -> None:
    def star(*urls: str) -> None: ...

    def slash(url: str, /) -> None: ...

    with pytest.raises(AppError, match=re.escape("job 'star': '*urls'")):
        Signature("star", star)
    with pytest.raises(AppError, match="job 'slash': 'url' is positional-only"):
        Signature("slash", slash)


def test_a_result_that_is_not_what_was_annotated_is_an_error_and_not_passed_off() -> None:
    with pytest.raises(InvalidInput, match=r"job 'fetch' succeeded.*expected str, got int"):
        SIGNATURE.unpack_result(values.pack(5, "it"))


def test_a_mistyped_parameter_is_told_with_the_nearest_one() -> None:
    with pytest.raises(InvalidArguments, match=r"'trys' \(nearest: 'tries'\); it takes \(url: str"):
        packed("http://a", trys=2)


def test_a_mistyped_parameter_that_is_needed_is_not_told_as_one_that_is_missing() -> None:
    with pytest.raises(InvalidArguments) as caught:
        packed(ur="http://a")
    assert str(caught.value).startswith(
        "job 'fetch': got an unexpected keyword argument 'ur' (nearest: 'url'); it takes (url: str"
    )


def test_a_context_without_its_annotation_is_told_where_it_is_missed() -> None:
    def resize(ctx, width: int) -> None:  # type: ignore[no-untyped-def]
        ...

    advice = r"missing a required argument: 'ctx'.*annotate ctx: longshore\.Context"
    signature = Signature("resize", resize)
    with pytest.raises(InvalidArguments, match=advice):
        signature.pack((), {"width": 3})
    with pytest.raises(InvalidArguments, match=advice):
        signature.bind(values.pack({"width": 3}, "it"))
    assert signature.bind(signature.pack((1, 2), {})) == {"ctx": 1, "width": 2}


def test_what_the_page_says_is_not_checked_passes_as_it_was_stored() -> None:
    def unchecked(
        a: Path, b: list[Path], c: Signature, d: Point | Other, e: str | bytes
    ) -> None: ...

    signature = Signature("unchecked", unchecked)
    given = dict.fromkeys("abcde", 7)
    assert signature.bind(signature.pack((), given)) == given


@pytest.mark.parametrize(
    "annotation",
    [
        None | bool | int | float | str,
        bytes,
        list[int],
        tuple[int, ...],
        set[int],
        dict[str, int],
        Sequence[int],
        Mapping[str, int],
        Literal["a"],
        Size,
        Place,
        Weight,
        Annotated[int, msgspec.Meta(ge=0)],
    ],
)
def test_what_the_page_says_is_checked_is(annotation: Any) -> None:
    def checked(value: object) -> None: ...

    checked.__annotations__["value"] = annotation
    with pytest.raises(InvalidArguments, match="argument 'value'"):
        Signature("checked", checked).pack(([{"no": -1.5}],), {})
