"""What the tests of the gateway share: an app, and a gateway for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import longshore
from longshore import Limit
from longshore.testing.kit import Kit, run_inline

from .api import Api


def make_app() -> longshore.App:
    """Jobs and an actor to call."""
    app = longshore.App("harbour")

    @app.job(retries=2)
    async def add(a: int, b: int) -> int:
        print("adding", a, b)
        return a + b

    @app.job(limit=Limit(1, key=lambda given: f"day={given['date']}"))
    async def close_day(date: str) -> str:
        return date

    @app.job
    async def fail(why: str) -> None:
        raise ValueError(why)

    @app.actor
    class Counter:
        count: int = 0

        async def bump(self, ctx: longshore.ActorContext, by: int = 1) -> int:
            self.count += by
            return self.count

    return app


@pytest.fixture
def kit() -> Iterator[Kit]:
    """What takes the place of dispatchers and workers."""
    with run_inline(make_app()) as kit:
        yield kit


@pytest.fixture
def make_api(kit: Kit) -> Callable[..., Api]:
    """Makes a gateway with these settings."""

    def make(**settings: Any) -> Api:
        return Api(kit, **settings)

    return make


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    """A gateway."""
    return make_api()
