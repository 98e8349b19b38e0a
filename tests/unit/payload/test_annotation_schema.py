"""What workers tell of types, and that it never refuses what the worker itself would take."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from longshore.client.signature import Signature
from longshore.errors import InvalidArguments
from longshore.model.job import Submission
from longshore.model.worker import KindInfo
from longshore.payload.annotation_schema import schema_of
from longshore.payload.jsonschema import MAX_SCHEMA_BYTES
from longshore.payload.schemas import check_arguments


class Colour(enum.Enum):
    RED = "red"


class Open(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Open:
        return cls.A


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass
class Tree:
    leaf: int
    parts: list[Tree]


class Page(msgspec.Struct, rename="camel", tag="page"):
    page_url: str
    seen_at: datetime | None = None


class Row(msgspec.Struct, array_like=True):
    a: int


class Pair(NamedTuple):
    a: int
    b: str


class Typed(TypedDict, total=False):
    a: int


def described(annotation: Any) -> Any:
    return msgspec.json.decode(schema_of(annotation) or "null")


def test_a_schema_says_of_which_type_a_value_is() -> None:
    assert described(int) == {"type": "integer"}
    assert described(datetime) == {"type": "string", "format": "date-time"}
    assert described(Point | None) == {
        "anyOf": [
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
                "required": ["x"],
            },
            {"type": "null"},
        ]
    }
    assert described(Tree)["properties"]["parts"] == {"type": "array"}
    assert described(list[Any]) == {"type": "array"}
    assert described(Colour) == {"enum": ["red"]}


def test_what_has_no_schema_has_none() -> None:
    for annotation in (Any, msgspec.Raw, Open, int | Open, msgspec.msgpack.Ext):
        assert schema_of(annotation) == ""
    wide = msgspec.defstruct("Wide", [(f"field{n}", int) for n in range(MAX_SCHEMA_BYTES // 10)])
    assert schema_of(wide) == ""


FITTING: list[tuple[Any, Any]] = [
    (int, 1),
    (float, 1),
    (bool, True),
    (str, "a"),
    (bytes, b"\xff"),
    (bytearray, bytearray(b"a")),
    (datetime, datetime(2030, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2030, 1, 1)),
    (date, date(2030, 1, 1)),
    (time, time(12)),
    (timedelta, timedelta(hours=1)),
    (UUID, UUID(int=1)),
    (Decimal, Decimal("1.1")),
    (Decimal, 2),
    (Colour, Colour.RED),
    (Open, "whatever"),
    (Literal["a", 1, None], None),
    (set[int], {1}),
    (frozenset[str], frozenset("a")),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (dict[str, Point], {"a": Point(1)}),
    (Point, {"x": 1, "unknown": 2}),
    (Tree, Tree(1, [Tree(2, [])])),
    (Page, Page("http://a", datetime(2030, 1, 1, tzinfo=UTC))),
    (Row, Row(1)),
    (Pair, Pair(1, "a")),
    (Typed, {}),
    (int | str | None, "a"),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    (Point | Page | None, None),
]


def advertised(annotation: Any) -> tuple[Signature, KindInfo]:
    def job(value: Any) -> None: ...

    job.__annotations__ = {"value": annotation, "return": None}
    signature = Signature("job", job)
    return signature, KindInfo(parameters=signature.parameters())


@pytest.mark.parametrize(("annotation", "value"), FITTING, ids=lambda part: repr(part)[:40])
def test_what_the_function_takes_the_dispatcher_takes(annotation: Any, value: Any) -> None:
    signature, info = advertised(annotation)
    check_arguments(Submission(UUID(int=1), "job", signature.pack((value,), {})), info)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "a"), (Point, {"x": "a"}), (datetime, 5), (UUID, 5), (list[int], [None]), (Page, 1)],
)
def test_both_say_the_same_of_what_does_not_fit(annotation: Any, value: Any) -> None:
    signature, info = advertised(annotation)
    packed = msgspec.msgpack.encode({"value": value})
    with pytest.raises(InvalidArguments) as here:
        signature.bind(packed)
    with pytest.raises(InvalidArguments) as there:
        check_arguments(Submission(UUID(int=1), "job", packed), info)
    assert str(there.value) == str(here.value)
