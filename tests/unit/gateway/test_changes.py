"""Open tabs and streams: nothing is asked while nothing changes, and a change is seen at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from tests.unit.dispatcher.stage import Stage
from tests.unit.dispatcher.test_rare_orders import pass_time
from tests.unit.dispatcher.test_without_hints import Mute

from longshore.client.connection import Connection
from longshore.config import GatewaySettings
from longshore.errors import ProtocolError
from longshore.gateway.app import make_app
from longshore.gateway.ids import new_id
from longshore.gateway.operation import Gateway
from longshore.ports import OnMessages
from longshore.testing.builders import a_job
from longshore.testing.loopback import Connector
from longshore.testing.virtual import run_virtually
from longshore.wire.codec import from_client

from .api import Api, Events

EVENTS = "text/event-stream"
TABS = ("/", "/jobs/", "/queues/", "/groups/", "/jobs/1", "/limits/")


class Counted:
    """A link that counts the requests which go over it."""

    def __init__(self, link: Connector, asked: Counter[str]) -> None:
        self._link = link
        self._asked = asked
        self.close = link.close

    def key_of(self, peer: bytes) -> str:
        """None: nobody is asked for a key."""
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Sends a request, and counts it."""
        self._asked[type(from_client.decode(list(frames))).__name__] += 1
        return self._link.send(peer, frames)


class Site(Api):
    """A gateway before a real dispatcher on a stage."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.stage = stage
        self.asked: Counter[str] = Counter()

        def connect(_: str, heard: OnMessages) -> Counted:
            return Counted(stage.network.connect("d1/clients", heard), self.asked)

        self.connection = Connection("stage://d1", connect=connect, new_id=new_id)
        self.gateway = Gateway(self.connection, GatewaySettings(**settings))
        self.app = make_app(self.gateway)

    async def settled(self) -> None:
        """Returns once no look happens any more, and forgets what was asked."""
        before = -1
        while before != (before := sum(self.asked.values()) - self.asked["AwaitChange"]):
            await pass_time(self.stage, 4.0)
        self.asked.clear()


def tell(story: Callable[[Stage], Awaitable[None]], *, is_mute: bool = False) -> None:
    async def main() -> None:
        async with Stage() as stage:
            if is_mute:
                stage.store = Mute(stage.model)
            await stage.dispatcher()
            await stage.client().submit(a_job())
            await story(stage)

    run_virtually(main())


async def opened(site: Site, tabs: AsyncExitStack, *paths: str) -> list[Events]:
    found = []
    for path in paths:
        events = await tabs.enter_async_context(site.stream(path, accept=EVENTS))
        assert await events.next() is not None, path
        found.append(events)
    return found


def test_open_tabs_ask_for_nothing_while_nothing_changes() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage, stream_idle_poll_s=1e6)
        async with AsyncExitStack() as tabs:
            await opened(site, tabs, *TABS, "/events", "/dispatcher/jobs/1/events")
            await site.settled()
            await pass_time(stage, 50.0)
            assert {*site.asked} == {"AwaitChange"}
            assert site.asked["AwaitChange"] <= 11

    tell(story)


def test_one_change_costs_each_open_address_one_look() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage, stream_idle_poll_s=1e6)
        async with AsyncExitStack() as tabs:
            first, *_ = await opened(site, tabs, *["/queues/"] * 20)
            await site.settled()
            await stage.client().submit(a_job())
            assert await first.next() is not None
            assert site.asked["ListLanes"] + site.asked["ListQueues"] <= 2

    tell(story)


def test_a_change_is_seen_within_half_a_second_after_a_quiet_time() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage)
        async with AsyncExitStack() as tabs:
            [events] = await opened(site, tabs, "/jobs/")
            await site.settled()
            for _ in range(3):
                changed_at = stage.clock.now()
                await stage.client().submit(a_job())
                assert await events.next() is not None
                assert stage.clock.now() - changed_at < 0.5

    tell(story)


def test_limits_are_looked_at_once_more_after_a_change_and_then_no_more() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage, stream_idle_poll_s=1e6)
        async with AsyncExitStack() as tabs:
            await opened(site, tabs, "/")
            await site.settled()
            for _ in range(2):
                await stage.client().submit(a_job())
                await pass_time(stage, 1.0)
            await pass_time(stage, 11.0)
            assert 1 <= site.asked["ListKeys"] <= 3
            await site.settled()
            await pass_time(stage, 30.0)
            assert not site.asked["ListKeys"]

    tell(story)


def test_nobody_asks_for_changes_when_the_last_tab_is_closed() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage)
        async with AsyncExitStack() as tabs:
            await opened(site, tabs, "/", "/events")
        await pass_time(stage, 100.0)  # in which the overview's throughput comes to its end
        site.asked.clear()
        await stage.client().submit(a_job())
        await pass_time(stage, 100.0)
        assert not site.asked

    tell(story)


def test_a_lost_hint_costs_a_while_and_no_more() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage, stream_idle_poll_s=30.0)
        async with AsyncExitStack() as tabs:
            [events] = await opened(site, tabs, "/jobs/")
            await site.settled()
            changed_at = stage.clock.now()
            await stage.dispatcher("d2")
            await stage.client("d2").submit(a_job())
            assert await events.next() is not None
            assert 0.5 < stage.clock.now() - changed_at < 31.0

    tell(story, is_mute=True)


def test_a_change_through_another_dispatcher_is_seen_within_half_a_second() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage)
        await stage.dispatcher("d2")
        async with AsyncExitStack() as tabs:
            [events] = await opened(site, tabs, "/jobs/")
            await site.settled()
            changed_at = stage.clock.now()
            await stage.client("d2").submit(a_job())
            assert await events.next() is not None
            assert stage.clock.now() - changed_at < 0.5

    tell(story)


def test_older_dispatchers_that_tell_of_nothing_are_looked_at_each_second() -> None:
    async def story(stage: Stage) -> None:
        site = Site(stage)
        site.connection.next_change = _unknown  # type: ignore[method-assign,assignment]
        async with AsyncExitStack() as tabs:
            [events] = await opened(site, tabs, "/jobs/")
            changed_at = stage.clock.now()
            await stage.client().submit(a_job())
            assert await events.next() is not None
            assert stage.clock.now() - changed_at < 1.5

    tell(story)


async def _unknown(*_: object) -> None:
    raise ProtocolError("there is no verb AWAITCHANGE")
