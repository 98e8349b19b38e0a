"""What annotations name survives the trip, as an argument and as a result."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from tests.system.apps import carried

from longshore.client.kind import AnyKind
from longshore.errors import InvalidArguments
from longshore.testing import run_inline

VALUES: list[tuple[AnyKind, Any]] = [
    (carried.dataclass_, carried.Box(1, carried.Box(2))),
    (carried.struct, carried.Page("http://a", {"x", "y"})),
    (carried.datetime_, datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)),
    (carried.datetime_, datetime(2030, 1, 1, 12, 30)),
    (carried.bytes_, b"\x00\xff"),
    (carried.enum_, carried.Colour.RED),
    (carried.uuid, UUID(int=5)),
    (carried.set_, {1, 2}),
    (carried.decimal, Decimal("1.10")),
]
NAMES = [f"{kind.kind}-{place}" for place, (kind, _) in enumerate(VALUES)]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=NAMES)
def test_a_value_comes_back_as_what_it_was(kind: AnyKind, value: Any) -> None:
    with run_inline(carried.app) as kit:
        handle = kind.submit(value)
        assert kit.submitted(kind)[0].arguments == {"value": value}
        kit.drain(raise_failures=True)
        result = handle.result()
        assert result == value
        assert type(result) is type(value)


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _ in VALUES), ids=lambda k: k.kind)
def test_a_value_of_another_type_is_refused_by_the_parameters_name(kind: AnyKind) -> None:
    named = rf"job '{kind.kind}': argument 'value' "
    with run_inline(carried.app), pytest.raises(InvalidArguments, match=named):
        kind.submit(["no"])
