"""Actions on everything that a search finds, in a real browser, on a site of their own.

Their jobs would push those of other tests off the first page.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from .dashboard import Site, faults, launched, running, watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("site"), "--workers", "1", bulk_page_jobs=1) as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with browser.new_context(base_url=site.url) as context:
        one = context.new_page()
        wrong = watched(one)
        yield one
        assert wrong == []


def test_all_that_match_are_counted_then_done(page: Page, site: Site) -> None:
    jobs = [{"kind": "refuse_to_run", "labels": ["few"]}] * 3
    site.call("POST", "/dispatcher/jobs/", {"jobs": jobs})
    page.goto("/jobs/?q=label:few")
    page.get_by_label("Action on all that match").select_option("priority")
    page.get_by_label("The new priority or queue").fill("many")
    page.get_by_role("button", name="Count first").click()
    expect(page.locator(".toast.bad")).to_contain_text("priority")
    page.get_by_label("Action on all that match").select_option("cancel")
    page.get_by_role("button", name="Count first").click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel: 3 jobs?")
    expect(page.get_by_role("dialog")).to_contain_text("3 jobs match: 3 ready.")
    page.get_by_role("button", name="Back").click()
    expect(page.locator(".region-jobs tbody")).to_contain_text("ready")
    page.get_by_role("button", name="Count first").click()
    page.get_by_role("button", name="Do it").click()
    expect(page.locator(".region-jobs tbody .s-cancelled")).to_have_count(3)
    expect(page.locator(".region-bulks")).to_contain_text("done: 3 done of 3 counted before")
    assert faults(page) == []


def test_a_running_bulk_shows_how_far_it_is_and_can_be_cancelled(page: Page, site: Site) -> None:
    """The store is held in the middle of it, so that the bulk is still running at the click."""
    jobs = [{"kind": "refuse_to_run", "labels": ["many"]}] * 400
    site.call("POST", "/dispatcher/jobs/", {"jobs": jobs})
    page.goto("/jobs/?q=label:many")
    with closing(sqlite3.connect(site.store, isolation_level=None)) as store:
        begun = site.call(
            "POST",
            "/dispatcher/bulk/",
            {"query": "label:many", "action": "cancel", "expected": 400},
        )
        store.execute("BEGIN IMMEDIATE")
        row = page.locator(".region-bulks tbody tr").first
        expect(row).to_contain_text("running: ")
        expect(row.get_by_label("Progress")).to_be_visible()
        row.get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        store.execute("ROLLBACK")
    expect(page.locator(".toast")).to_contain_text("is cancelled")
    expect(row).to_contain_text("cancelled: ")
    stopped = site.call("GET", f"/dispatcher/bulk/{begun['number']}")
    assert (stopped["state"], stopped["stopped_by"]) == ("cancelled", "a client")
    assert stopped["done"] < 400
