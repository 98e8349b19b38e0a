"""The page of a job in a real browser: its log as it comes, hostile text, keys, its timeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.dashboard import Site, launched, running, watched

HOSTILE = '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'
HIDE = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
TELL = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with browser.new_context(base_url=site.url) as context:
        one = context.new_page()
        wrong = watched(one)
        yield one
        assert wrong == []


def say(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def test_a_log_comes_line_by_line_and_stands_still_while_the_tab_is_hidden(
    page: Page, site: Site, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    number = site.submit("speak", said=str(said))
    page.goto(f"/jobs/{number}")
    lines = page.locator("ol.log li")
    say(said, "one")
    expect(lines).to_have_count(1)
    say(said, "two")
    expect(lines).to_have_count(2)
    page.evaluate(HIDE % "true" + TELL)
    say(said, "three")
    path = f"/dispatcher/jobs/{number}/logs"
    while len(site.call("GET", path)["lines"]) < 3:
        pass
    expect(lines).to_have_count(2)
    page.evaluate(HIDE % "false" + TELL)
    expect(lines).to_have_count(3)
    say(said, "end")
    expect(lines.locator("span")).to_have_text(["one", "two", "three", "end"])
    expect(page.locator(".heading .state")).to_contain_text("succeeded")


def test_without_scripts_a_link_leads_to_the_rest_of_a_long_log(
    browser: Browser, site: Site
) -> None:
    number = site.submit("chat", lines=1500)
    assert site.done(number) == "succeeded"
    with browser.new_context(base_url=site.url, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"/jobs/{number}")
        expect(page.locator("ol.log li").last).to_contain_text("line 999")
        page.get_by_role("link", name="the rest of the log").click()
        expect(page.locator("ol.log li").first).to_contain_text("line 1000")
        expect(page.locator("ol.log li").last).to_contain_text("line 1499")
        expect(page.get_by_role("link", name="the rest of the log")).to_have_count(0)
        page.get_by_role("link", name="the log from its begin").click()
        expect(page.locator("ol.log li").first).to_contain_text("line 0")


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_job_says_returns_and_raises_stays_text(page: Page, site: Site, fails: bool) -> None:
    number = site.submit("repeat", text=HOSTILE, fails=fails)
    page.goto(f"/jobs/{number}")
    expect(page.locator(".heading .state")).to_contain_text("failed" if fails else "succeeded")
    expect(page.locator("ol.log")).to_contain_text(HOSTILE)
    region = ".region-error" if fails else ".region-values"
    expect(page.locator(region)).to_contain_text(HOSTILE)
    for path in (f"/jobs/{number}", "/jobs/", "/"):
        page.goto(path)
        expect(page.locator("#live")).to_have_text("live")
        assert "owned" not in page.title()
        assert page.locator("main img, main script").count() == 0


def test_a_job_is_cancelled_by_keys_alone(page: Page, site: Site, tmp_path: Path) -> None:
    number = site.submit("hold", started=str(tmp_path / "started"), until=str(tmp_path / "until"))
    page.goto(f"/jobs/{number}")
    expect(page.locator(".heading .state")).to_contain_text("running")
    focused = "document.activeElement.textContent"
    while page.evaluate(focused) != "Cancel":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert page.evaluate(focused) == "Cancel"
    page.keyboard.press("Enter")
    while page.evaluate("document.activeElement.className") != "go":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".heading .state")).to_contain_text("cancelled")


def test_the_bar_of_a_running_job_grows(page: Page, site: Site, tmp_path: Path) -> None:
    until = tmp_path / "until"
    number = site.submit("hold", started=str(tmp_path / "started"), until=str(until))
    page.goto(f"/jobs/{number}")
    row = page.get_by_role("row").filter(has_text="attempt 1")
    bar = "Number(document.querySelector('[data-grows]').getAttribute('width'))"
    expect(row).to_be_visible()
    began = page.evaluate(bar)
    while page.evaluate(bar) <= began:
        pass
    until.touch()
    expect(page.locator("[data-grows]")).to_have_count(0)
    expect(row).to_be_visible()


def test_a_job_of_a_group_is_retried_with_other_arguments(page: Page, site: Site) -> None:
    jobs = [
        {"key": "bad", "kind": "repeat", "args": {"text": "no", "fails": True}},
        {"key": "then", "kind": "add", "args": {"a": 1, "b": 1}, "after": ["bad"]},
    ]
    group = site.call("POST", "/dispatcher/groups/", {"name": "mended", "jobs": jobs})
    page.goto(f"/groups/{group['number']}")
    expect(page.locator(".heading .state")).to_contain_text("failed")
    page.goto(f"/jobs/{group['number'] + 1}")
    page.get_by_role("button", name="Retry with other arguments").click()
    page.locator("dialog textarea").fill(json.dumps({"text": "yes", "fails": False}))
    page.locator("dialog[open] .go").click()
    expect(page.locator("dialog[open]")).to_contain_text("2 jobs run again")
    page.locator("dialog[open] .go").click()
    expect(page.locator(".heading .state")).to_contain_text("succeeded")
    expect(page.locator(".region-values")).to_contain_text("yes")
    page.goto(f"/groups/{group['number']}")
    expect(page.locator(".heading .state")).to_contain_text("succeeded")


def test_a_page_is_painted(page: Page, site: Site) -> None:
    """How soon is printed, by the browser's own measure."""
    for path in ("/", "/jobs/", "/groups/", "/queues/"):
        page.goto(path)
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        while (painted := page.evaluate(paint)) is None:
            pass
        print(f"first paint of {path}: {painted:.0f} ms")
