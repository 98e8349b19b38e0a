"""Workers of gateways: they alone serve Longshore's own kinds, and count as no user's capacity."""

from __future__ import annotations

import pytest

from longshore.core.capacity import capacity
from longshore.model.job import JobState
from longshore.model.worker import KindInfo, Pool
from longshore.testing.builders import a_job, new_id
from longshore.wire import messages as m

from .stage import Stage
from .test_impostors import Stranger, introduction
from .test_stories import tell

OWN = {"longshore.callback": KindInfo()}


def of_gateway(**changes: object) -> m.Ready:
    return introduction(kinds=OWN, queues=("longshore.callbacks",), gateway=True, **changes)


def test_without_keys_a_gateway_is_believed() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        stranger = Stranger(stage)
        stranger.say(of_gateway())
        await stranger.told(m.Welcome)
        [session] = dispatcher._roster
        assert session.info.gateway

    tell(story)


@pytest.mark.parametrize("own", [{"kinds": OWN}, {"queues": ("longshore.callbacks",)}])
def test_who_is_no_gateway_may_not_serve_reserved_names(own: dict[str, object]) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stranger = Stranger(stage)
        stranger.say(introduction(**own))
        told = await stranger.told(m.Exit)
        assert isinstance(told, m.Exit)
        assert "are for gateways" in told.reason

    tell(story)


def test_with_keys_only_those_of_gateways_carry_their_workers() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        dispatcher._link._gateway_keys = {"k-gateway"}
        stranger, gateway = Stranger(stage, key="k-other"), Stranger(stage, key="k-gateway")
        stranger.say(of_gateway())
        told = await stranger.told(m.Exit)
        assert isinstance(told, m.Exit)
        assert "curve_gateways" in told.reason
        gateway.say(of_gateway())
        await gateway.told(m.Welcome)

    tell(story)


def test_a_gateway_is_no_capacity_and_why_does_not_take_it_for_a_worker() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher()
        gateway, client, job = Stranger(stage), stage.client(), a_job()
        gateway.say(of_gateway())
        await gateway.told(m.Welcome)
        found = capacity(await dispatcher._store.workers())
        assert not found.kinds
        assert not found.pools
        await client.submit(job)
        assert (await client.why(job)).startswith("no worker is connected")

    tell(story)


def test_a_lost_gateway_is_no_crash_of_what_it_ran() -> None:
    async def story(stage: Stage) -> None:
        dispatcher = await stage.dispatcher(crash_limit=1)
        gateway, client, job = Stranger(stage), stage.client(), a_job()
        gateway.say(
            introduction(
                worker=new_id(),
                kinds={job.kind: KindInfo()},
                gateway=True,
                pools={Pool.COROUTINE: 1},
            )
        )
        await gateway.told(m.Welcome)
        await client.submit(job)
        await gateway.told(m.Jobs)
        await stage.until(lambda: not list(dispatcher._roster))
        await stage.until(lambda: dispatcher._losses.all_told)
        assert await stage.state(job) is JobState.READY

    tell(story)
