"""The page of a group: what could not run because of a failure, only what failed, two runs."""

from __future__ import annotations

import re

from ..api import Api
from ..conftest import api as api
from ..conftest import kit as kit
from ..conftest import make_api as make_api

GROUPS = "/dispatcher/groups/"


async def ran(api: Api, why: str) -> int:
    """A group of which `fails` fails, if `why` says why; its number."""
    bad = {"kind": "fail", "args": {"why": why}} if why else {"kind": "add", "args": ADD}
    jobs = [
        {"key": "good", "kind": "add", "args": ADD},
        {"key": "bad", **bad},
        {"key": "then", "kind": "add", "args": ADD, "after": ["bad"]},
        {"key": "last", "kind": "add", "args": ADD, "after": ["then", "good"]},
    ]
    made = await api.post(GROUPS, {"name": "nightly", "jobs": jobs, "fail_fast": False})
    await api.kit.drain_async()
    number: int = made.json["number"]
    return number


ADD = {"a": 1, "b": 1}


async def page(api: Api, path: str) -> str:
    reply = await api.get(path)
    assert reply.status == 200
    return reply.body.decode()


async def test_what_could_not_run_because_of_a_failure_is_named_with_links(api: Api) -> None:
    number = await ran(api, "no luck")
    shown = await page(api, f"/groups/{number}")
    lost = shown[shown.index("2 could not run") :]
    lost = lost[: lost.index("</details>")]
    assert re.findall(r'href="\.\./jobs/(\d+)"[^>]*>(\w+)<', lost) == [
        (str(number + 3), "then"),
        (str(number + 4), "last"),
    ]


async def test_only_what_failed_is_drawn_with_its_edges(api: Api) -> None:
    number = await ran(api, "no luck")
    assert f'href="../groups/{number}?only=failed"' in await page(api, f"/groups/{number}")
    shown = await page(api, f"/groups/{number}?only=failed")
    assert "3 jobs, 2 edges" in shown
    assert f'href="../groups/{number}"' in shown
    assert "Only what failed" not in await page(api, f"/groups/{await ran(api, '')}")


async def test_a_run_is_compared_with_the_last_of_its_name(api: Api) -> None:
    first = await ran(api, "")
    second = await ran(api, "no luck")
    assert (
        "no run of this name came before"
        in (await page(api, f"/groups/{first}?compare=before")).lower()
    )
    assert f'href="../groups/{second}?compare=before"' in await page(api, f"/groups/{second}")
    shown = await page(api, f"/groups/{second}?compare=before")
    part = shown[shown.index("Since the last run") :]
    part = part[: part.index("</table>")]
    assert f"groups/{first}" in part
    assert "succeeded before, dependency failed now" in part
    assert "succeeded before, failed now" in part
    assert "good" not in part
