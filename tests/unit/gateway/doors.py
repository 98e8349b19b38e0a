"""A gateway before a real dispatcher over the model store, on virtual time; and tokens for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.dispatcher.stage import Stage
from tests.unit.dispatcher.test_stories import tell

from longshore.client.tokens import new_token
from longshore.config import GatewaySettings
from longshore.gateway.app import make_app
from longshore.gateway.asking import asking
from longshore.gateway.connection import GatewayConnection
from longshore.gateway.ids import new_id
from longshore.gateway.operation import Gateway
from longshore.model.access import Role, Scope, Token
from longshore.testing import builders

from .api import QUICK, Api


class Door(Api):
    """A gateway of a stage. A call as `token="ls_…"` shows that token."""

    def __init__(self, stage: Stage, *, needs_token: bool = False, **settings: Any) -> None:
        self.stage = stage
        self.connection = GatewayConnection(
            "tcp://d1",
            connect=lambda _, heard: stage.network.connect("d1/clients", heard),
            new_id=new_id,
            token=asking,
            timeout_s=5.0,
        )
        settings = {**QUICK, **settings}
        self.gateway = Gateway(
            self.connection, GatewaySettings(**settings), needs_token=needs_token
        )
        self.gateway.askers._now = stage.clock.now
        self.app = make_app(self.gateway)

    async def token(self, role: Role = Role.ADMIN, name: str = "", **more: Any) -> str:
        """A new token."""
        expires_s = more.pop("expires_s", None)
        id = builders.new_id()
        secret, new = new_token(id, name or f"t{id.int}"[:40], role, Scope(**more), expires_s)
        made = await self.stage.model.create_token(new, "test", most=1000)
        assert isinstance(made, Token)
        return secret


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"authorization": f"Bearer {token}"}


def story(told: Callable[[Stage, Door], Awaitable[None]]) -> Callable[[], None]:
    """A test on a stage with one dispatcher and a door."""

    def test() -> None:
        async def on_stage(stage: Stage) -> None:
            await stage.dispatcher()
            await told(stage, Door(stage))

        tell(on_stage)

    test.__name__, test.__doc__ = told.__name__, told.__doc__
    return test
