"""Limits in the test kit: groups with limits run to their end, also what jobs add to them."""

from __future__ import annotations

from longshore import App, Context, Limit
from longshore.model.group import GroupState
from longshore.testing import run_inline

app = App("limits")


@app.job(limit=Limit(1, key="tenant"))
async def report(tenant: str) -> str:
    return tenant


@app.job
async def grow(ctx: Context) -> None:
    for tenant in ("acme", "acme"):
        ctx.group.add(report.call(tenant))


def test_a_group_with_limits_runs_to_its_end() -> None:
    with run_inline(app) as kit:
        with app.group("nightly") as group:
            first = group.add(grow.call(), key="grow")
            group.map(report, over=["acme", "acme", "bolt"], key="each", after=first)
        kit.drain()
        assert group.handle.wait(10) is GroupState.SUCCEEDED
        assert group.handle.group().counts == {"succeeded": 7}
