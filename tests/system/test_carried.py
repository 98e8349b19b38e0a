"""Types that survive the trip through real processes, and those that are refused on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import longshore
from longshore.errors import InvalidArguments
from longshore.testing.processes import Process, run, settings
from tests.system.apps import carried
from tests.system.conftest import ANY, APPS, QUICK
from tests.system.pages import succeed

VALUES: dict[str, Any] = {
    "dataclass_": carried.Box(1, carried.Box(2)),
    "struct": carried.Page("http://a", {"x"}),
    "datetime_": datetime(2030, 1, 1, tzinfo=UTC),
    "bytes_": b"\x00\xff",
    "enum_": carried.Colour.RED,
    "uuid": UUID(int=5),
    "set_": {1, 2},
    "decimal": Decimal("1.10"),
}


def test_values_come_back_and_wrong_ones_are_refused_before_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    words = ["--app", "carried:app", "--store", store, "--backend", ANY, "--frontend", ANY]
    with Process("up", *words, *settings(**QUICK), cwd=APPS, log=tmp_path / "up.log") as up:
        frontend = up.ready().facts["frontend"]
        monkeypatch.setattr(carried.app, "_addresses", frontend)
        with carried.app:
            for kind, value in VALUES.items():
                handle = carried.app.submit_by_name(kind, {"value": value})
                assert handle.result(30) == value
        _wrong_ones_are_refused(frontend)


def _wrong_ones_are_refused(frontend: str) -> None:
    """By the dispatcher: who submits has nothing but the kind's name."""
    with longshore.App("elsewhere", frontend) as app:
        for kind in VALUES:
            with pytest.raises(InvalidArguments, match=f"job '{kind}': argument 'value' "):
                app.submit_by_name(kind, {"value": [None]})
        told = app.submit_by_name("dataclass_", {"value": {"width": 3}}).result(30)
        assert told["width"] == 3
    done = run("submit", "uuid", "value=5", "--connect", frontend)
    assert done.returncode == 2
    assert "job 'uuid': argument 'value' expected uuid, got int" in done.stderr


MODELLED = """
import pydantic

import longshore

app = longshore.App("modelled")


class Item(pydantic.BaseModel):
    name: str
    weight: float = 1.0


class Parcel(pydantic.BaseModel):
    items: list[Item]


@app.job(isolation="process")
async def pack(parcel: Parcel, more: Item | None = None) -> Parcel:
    assert isinstance(more, Item), more
    return Parcel(items=[*parcel.items, more])
"""

SUBMITTING = """
from modelled import Item, Parcel, pack

tea, milk = Item(name="tea"), Item(name="milk", weight=2.5)
assert pack.submit(Parcel(items=[tea]), milk).result(30) == Parcel(items=[tea, milk])
"""


def test_pydantic_models_come_back_from_a_real_worker(tmp_path: Path) -> None:
    (tmp_path / "modelled.py").write_text(MODELLED)
    words = ["--app", "modelled:app", "--store", f"sqlite:///{tmp_path / 'jobs.db'}"]
    words += ["--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        succeed(SUBMITTING, {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}, tmp_path)
