"""Pages over the test kit's dispatcher: documents, streams, files, and who may."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.access import Asker, hash_of
from longshore.core.bulks import begun
from longshore.core.turns import LONG_TURN_S
from longshore.gateway.app import make_app
from longshore.gateway.pages.on_all import bulks_list, on_all_form
from longshore.gateway.pages.page import View
from longshore.gateway.pages.static import MOST_BYTES, static_files
from longshore.gateway.pages.table import PAGES
from longshore.gateway.pages.throughput import Sample, rate
from longshore.gateway.routes import OPERATIONS
from longshore.model.access import Role
from longshore.model.bulk import BulkAction, NewBulk
from longshore.model.depth import LaneView
from longshore.model.job import JobFilter, JobPage, JobState, Options
from longshore.testing.builders import a_job
from longshore.testing.memory_rows import new_row
from longshore.wire.limit_messages import ListKeys
from longshore.wire.messages import ListDispatchers, ListJobs, ListLanes, ListWorkers
from longshore.wire.schedule_messages import ListSchedules

from ..api import Api
from ..conftest import api as api
from ..conftest import kit as kit
from ..conftest import make_api as make_api

JOBS = "/dispatcher/jobs/"
EVENTS = "text/event-stream"


async def submit(api: Api) -> int:
    reply = await api.post(JOBS, {"kind": "add", "args": {"a": 1, "b": 2}})
    number: int = reply.json["number"]
    return number


def with_fleet(api: Api) -> None:
    """The kit has no fleet; an empty one is enough for pages."""
    api.replies |= {ListWorkers: (), ListDispatchers: (), ListLanes: ()}


def test_no_page_hides_a_route_of_the_api() -> None:
    taken = {one.path for one in OPERATIONS}
    assert not taken & {one.path for one in PAGES}
    assert not any(one.path.startswith("/dispatcher/") for one in PAGES)


async def test_a_page_has_a_strict_policy_and_no_script_of_its_own(api: Api) -> None:
    with_fleet(api)
    number = await submit(api)
    for path in ("/", "/jobs/", f"/jobs/{number}", "/groups/", "/queues/", "/workers/", "/sign-in"):
        reply = await api.get(path)
        assert reply.status == 200, path
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["referrer-policy"] == "same-origin"
        assert reply.headers["x-content-type-options"] == "nosniff"
        page = reply.body.decode()
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page), path
        assert not re.search(r'(?:href|src|action)="(?:/|https?:)', page), path


async def test_links_lead_up_as_far_as_a_page_lies_deep(api: Api) -> None:
    await submit(api)
    for path, root in (("/", "./"), ("/jobs", "./"), ("/jobs/", "../"), ("/jobs/1", "../")):
        assert f'data-root="{root}"' in (await api.get(path)).body.decode(), path


async def test_the_stream_of_a_page_has_what_changes(api: Api) -> None:
    async with api.stream("/jobs/", accept=EVENTS) as events:
        first = await events.next()
        assert first is not None
        assert first["event"] == "regions"
        assert {*first["data"]["regions"]} == {"search", "on-all", "bulks", "jobs"}
        assert "no job matches" in first["data"]["regions"]["jobs"]
        await submit(api)
        second = await events.next()
        assert second is not None
        assert {*second["data"]["regions"]} == {"jobs"}
        assert "add" in second["data"]["regions"]["jobs"]


async def test_all_tabs_share_one_look(api: Api) -> None:
    with_fleet(api)
    async with api.stream("/", accept=EVENTS) as one, api.stream("/", accept=EVENTS) as two:
        for events in (one, two):
            assert (await events.next()) is not None
        watches = api.gateway.streams._watches
        assert len(watches) == 1


async def test_what_is_not_there_is_said_on_a_page(api: Api) -> None:
    reply = await api.get("/jobs/99")
    assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "there is no job 99" in reply.body.decode()


async def test_a_wrong_search_is_answered_in_words(api: Api) -> None:
    page = (await api.get("/jobs/?q=stat:failed+group:99")).body.decode()
    assert "did you mean state:?" in page
    assert "there is no group 99" in page


# files


def test_all_files_together_are_small() -> None:
    assert 10_000 < sum(map(len, static_files().values())) < MOST_BYTES


async def test_files_are_kept_by_browsers_and_found_by_their_hash(api: Api) -> None:
    page = (await api.get("/")).body.decode()
    [style] = re.findall(r'href="\./(static/\w+/style\.css)"', page)
    reply = await api.get(f"/{style}")
    assert reply.headers["content-type"].startswith("text/css")
    assert "immutable" in reply.headers["cache-control"]
    again = await api.get(f"/{style}", if_none_match=reply.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    old = await api.get("/static/0123456789abcdef/style.css")
    assert old.headers["cache-control"] == "no-cache"
    assert (await api.get("/static/x/nothing.js")).status == 404


# who may

TOKEN = "ls_" + "x" * 43
COOKIE = f"longshore_token={TOKEN}"


async def test_without_a_token_one_is_asked_to_sign_in(make_api: Callable[..., Api]) -> None:
    api = _needing_tokens(make_api)
    reply = await api.get("/jobs/?q=kind:add", sec_fetch_site="none")
    assert reply.status == 401
    assert 'name="next" value="jobs/?q=kind:add"' in reply.body.decode()


def _needing_tokens(make_api: Callable[..., Api]) -> Api:
    api = make_api()
    api.gateway.needs_token = True
    return api


@pytest.mark.parametrize(
    ("method", "site", "counts"),
    [
        ("GET", "same-origin", True),
        ("GET", "none", True),
        ("GET", None, False),
        ("DELETE", "same-origin", True),
        ("DELETE", "none", False),
        ("DELETE", None, False),
    ],
)
async def test_the_cookie_counts_only_for_our_own_pages(
    make_api: Callable[..., Api],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    site: str | None,
    counts: bool,
) -> None:
    api = _needing_tokens(make_api)
    checked: list[bytes] = []

    async def check(token: bytes, right: object) -> None:
        checked.append(token)

    monkeypatch.setattr(api.gateway.askers, "check", check)
    headers = {"cookie": COOKIE, **({} if site is None else {"sec_fetch_site": site})}
    reply = await api.call(method, f"{JOBS}1", chunks=None, **headers)
    assert (reply.status == 401) is not counts
    assert checked == ([hash_of(TOKEN)] if counts else [])


async def test_a_link_of_another_site_leads_to_pages_and_to_nothing_else(api: Api) -> None:
    away = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert (await api.get("/jobs/", **away, sec_fetch_dest="document")).status == 200
    assert (await api.get("/jobs/", **away, sec_fetch_dest="iframe")).status == 403
    assert (
        await api.get("/jobs/", sec_fetch_site="cross-site", sec_fetch_mode="cors")
    ).status == 403
    assert (await api.get(JOBS, **away, sec_fetch_dest="document")).status == 403
    assert (await api.call("POST", "/sign-out", chunks=None, **away)).status == 403


async def test_who_follows_a_link_is_shown_the_page_by_our_own_link(
    make_api: Callable[..., Api],
) -> None:
    """The cookie does not come with a link of another site: the page asks once more itself."""
    api = _needing_tokens(make_api)
    away = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    reply = await api.get("/jobs/7", **away, sec_fetch_dest="document")
    assert '<meta http-equiv="refresh" content="0; url=../jobs/7">' in reply.body.decode()


@pytest.mark.parametrize(
    ("then", "where"),
    [
        ("jobs/?q=a:b", "jobs/?q=a:b"),
        ("//evil.example", "evil.example"),
        ("../x", ""),
        ("a\\b", ""),
    ],
)
async def test_signing_in_leads_to_our_pages_only(
    api: Api, monkeypatch: pytest.MonkeyPatch, then: str, where: str
) -> None:
    async def asker(token: bytes) -> Asker:
        return Asker("reader")

    monkeypatch.setattr(api.gateway.askers, "asker", asker)
    body = f"token={TOKEN}&next={then}".encode()
    form = {"content_type": "application/x-www-form-urlencoded"}
    reply = await api.post("/sign-in", body, **form)
    assert (reply.status, reply.headers["location"]) == (303, f"./{where}")
    assert reply.headers["set-cookie"] == f"{COOKIE}; HttpOnly; SameSite=Strict"
    own = {"origin": "https://127.0.0.1", "host": "127.0.0.1"}
    safe = await api.post("/sign-in", body, **form, **own)
    assert safe.headers["set-cookie"].endswith("; Secure")


async def test_a_board_is_for_pages_only(
    make_api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = _needing_tokens(make_api)
    api.gateway.board = hash_of(TOKEN)
    api.app = make_app(api.gateway)
    asked: list[bytes] = []

    async def check(token: bytes, right: object) -> None:
        asked.append(token)

    monkeypatch.setattr(api.gateway.askers, "check", check)
    assert (await api.get(JOBS)).status == 401
    await api.get("/queues/")
    assert asked == [hash_of(TOKEN)]


# what is wrong


async def test_the_overview_tells_of_turns_that_may_hang(api: Api) -> None:
    with_fleet(api)
    api.replies |= {ListKeys: (), ListSchedules: ()}
    lanes = LaneView(queue="default", kind="Ship@1", counts={"running": 2})
    began = datetime(2030, 1, 1, tzinfo=UTC)

    def turns(request: ListJobs) -> JobPage:
        wanted = request.wanted
        assert (wanted.kind, wanted.states) == ("Ship@1", (JobState.RUNNING,))
        assert wanted.slower_s == LONG_TURN_S
        terms = (Options(turn=True), Options(turn=True, timeout_s=7_200.0), Options(reads=True))
        turn = a_job(kind="Ship@1")
        made = (structs.replace(turn, options=one) for one in terms)
        jobs = (new_row(one, 0, 1, began).job for one in made)
        return JobPage(tuple(jobs))

    def jobs(request: ListJobs) -> JobPage:
        return turns(request) if request.wanted.slower_s else JobPage()

    api.replies |= {ListLanes: (lanes,), ListJobs: jobs}
    page = (await api.get("/")).body.decode()
    assert "a turn of type 'Ship' may hang: no timeout_s ends it" in page
    assert 'href="./actors/?type=Ship&amp;status=running"' in page


# throughput


def test_what_ended_is_what_came_less_what_grew() -> None:
    assert rate(Sample(0.0, 100, 10), Sample(5.0, 200, 60)) == 10.0


def test_a_retry_by_hand_does_not_make_the_rate_negative() -> None:
    assert rate(Sample(0.0, 100, 10), Sample(5.0, 100, 12)) == 0.0


# all that match


def page_of_bulks(role: Role) -> str:
    """The form and the list, as the holder of a token of this role sees them."""
    view = View("../", "jobs/", Asker("token:one", role))
    wanted = JobFilter(kind="report", states=(JobState.FAILED,))
    new = NewBulk(UUID(int=1), BulkAction.RETRY, wanted, expected=10)
    bulk = structs.replace(begun(new, 4, 99, datetime(2030, 1, 1, tzinfo=UTC)), matched=3, done=3)
    return f"{on_all_form('kind:report', view)}{bulks_list([bulk], view)}"


def test_a_running_bulk_says_how_far_it_is_and_can_be_cancelled() -> None:
    page = page_of_bulks(Role.SUBMIT)
    assert 'value="0.300"' in page
    assert "running: 3 done of 10 counted before" in page
    assert 'data-method="DELETE" data-path="dispatcher/bulk/4"' in page


def test_who_may_do_less_is_offered_less() -> None:
    assert 'value="delete"' in page_of_bulks(Role.ADMIN)
    submits = page_of_bulks(Role.SUBMIT)
    assert 'value="delete"' not in submits
    assert 'value="move"' in submits
    reads = page_of_bulks(Role.READ)
    assert "<form" not in reads
    assert "dispatcher/bulk/4" not in reads
    assert "running: 3 done" in reads


async def test_what_is_no_search_offers_nothing_for_all(api: Api) -> None:
    with_fleet(api)
    for query, offers in (("kind:add", True), ("", False), ("7", False), ("kindd:add", False)):
        page = (await api.get(f"/jobs/?q={query}")).body.decode()
        assert ('data-query="' in page) is offers, query
