"""A gateway counts what it answers, and shows it."""

from __future__ import annotations

from longshore.core.metering import OF_GATEWAYS

from .api import Api


async def shown(api: Api) -> list[str]:
    reply = await api.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return reply.body.decode().splitlines()


async def test_requests_are_counted_by_operation_and_class_of_status(api: Api) -> None:
    await api.post("/dispatcher/jobs/", {"kind": "add", "args": {"a": 1, "b": 2}})
    await api.get("/dispatcher/jobs/4711")
    await api.get("/nowhere")
    lines = await shown(api)
    for labels in (
        'operation="submit_jobs",status="2xx"',
        'operation="show_job",status="4xx"',
        'operation="none",status="4xx"',
    ):
        assert f"longshore_http_requests_total{{{labels}}} 1.0" in lines
    assert 'longshore_http_request_seconds_count{operation="submit_jobs"} 1.0' in lines
    assert "longshore_http_requests_under_way 1.0" in lines  # the one that asks


async def test_request_that_the_guard_refuses_is_counted(api: Api) -> None:
    await api.get("/healthz", host="evil.example")
    assert 'longshore_http_requests_total{operation="none",status="4xx"} 1.0' in await shown(api)


async def test_every_metric_of_gateways_is_shown_with_its_help(api: Api) -> None:
    await api.get("/healthz")
    lines = await shown(api)
    for metric in OF_GATEWAYS:
        assert f"# HELP {metric.shown} {metric.help}" in lines


async def test_open_metrics_are_shown_to_who_asks_for_them(api: Api) -> None:
    reply = await api.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert reply.body.endswith(b"# EOF\n")
