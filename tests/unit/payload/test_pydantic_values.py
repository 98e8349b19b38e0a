"""pydantic's models as arguments and results, and no pydantic where there are none."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from longshore import App
from longshore.errors import InvalidArguments, InvalidInput, NotSerialisable
from longshore.payload import values
from longshore.testing import run_inline

Item = pydantic.create_model("Item", name=(str, ...), price=(Decimal, Decimal("0")))
Parcel = pydantic.create_model(
    "Parcel",
    items=(list[Item], ...),  # type: ignore[valid-type]
    label=(bytes, b""),
    sent_at=(datetime | None, None),
    # Known by another name outside.
    to=(str, pydantic.Field("", alias="recipient")),
    page=(pydantic.HttpUrl | None, None),
)
app = App("post")


def declared(kind: str, annotation: Any) -> Any:
    def job(value: Any) -> Any:
        assert value is None or isinstance(value, list | pydantic.BaseModel), value
        return value

    job.__annotations__ = {"value": annotation, "return": annotation}
    return app.job(kind=kind)(job)


one = declared("one", Parcel)
maybe = declared("maybe", Parcel | None)
many = declared("many", list[Parcel])  # type: ignore[valid-type]
SENT = datetime(2030, 1, 1, tzinfo=UTC)
PARCEL = Parcel(
    items=[Item(name="tea", price=Decimal("1.10"))],
    label=b"\xff\x00",
    sent_at=SENT,
    recipient="ann",
    page="http://a.example/x",
)


@pytest.mark.parametrize(
    ("kind", "value"), [(one, PARCEL), (maybe, PARCEL), (maybe, None), (many, [PARCEL, PARCEL])]
)
def test_a_model_comes_back_as_what_it_was(kind: Any, value: Any) -> None:
    with run_inline(app) as kit:
        handle = kind.submit(value)
        kit.drain(raise_failures=True)
        assert handle.result() == value


def test_a_map_will_do_where_it_fits() -> None:
    with run_inline(app) as kit:
        handle = app.submit_by_name("one", {"value": {"items": [], "recipient": "bob"}})
        kit.drain(raise_failures=True)
        assert handle.result() == Parcel(items=[], recipient="bob")


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (
            one,
            {"items": [{"name": 5}]},
            "job 'one': argument 'value' is no Parcel: items.0.name: Input should be a valid",
        ),
        (one, 5, "job 'one': argument 'value' is no Parcel: Input should be a valid"),
        (many, [PARCEL, {}], r"argument 'value' is no Parcel: items: Field required \(at \[1\]\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_place(
    kind: Any, value: Any, message: str
) -> None:
    with run_inline(app), pytest.raises(InvalidArguments, match=message):
        kind.submit(value)


def test_a_result_that_is_no_such_model_is_told() -> None:
    with pytest.raises(InvalidInput, match="not what its annotation says: is no Parcel"):
        one.handler.signature.unpack_result(values.pack({"items": 1}, "it"))


def test_a_secret_is_not_stored_as_something_else() -> None:
    secret = pydantic.create_model("Secret", word=(pydantic.SecretStr, ...))
    with pytest.raises(NotSerialisable, match="SecretStr"):
        values.pack(secret(word="x"), "it")


def test_pydantic_is_not_imported_for_who_does_not_use_it() -> None:
    code = """
import sys
import longshore
app = longshore.App("plain")
@app.job
def add(a: int) -> int:
    return a
add.call(1)
assert not [name for name in sys.modules if name.startswith("pydantic")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
