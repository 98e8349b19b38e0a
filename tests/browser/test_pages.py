"""The dashboard in a real browser, over a real `longshore up`: each page, and each action."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from longshore.testing.processes import run
from tests.browser.dashboard import Site, faults, launched, running, watched

HOSTILE = '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A dashboard with a job that succeeded, one that failed, one that nobody runs, and a group."""
    folder = tmp_path_factory.mktemp("site")
    with running(folder, "--workers", "2") as found:
        assert found.done(found.submit("add", a=1, b=2**60 + 1)) == "succeeded"
        assert found.done(found.submit("unserialisable_async")) == "failed"
        unserved = {"kind": "refuse_to_run", "args": {}}
        found.call("POST", "/dispatcher/jobs/", unserved)
        jobs = [
            {"key": "first", "kind": "add", "args": {"a": 1, "b": 1}},
            {"key": "gate", "gate": True, "after": ["first"]},
            {"key": "last", "kind": "add", "args": {"a": 1, "b": 1}, "after": ["gate"]},
        ]
        made = found.call("POST", "/dispatcher/groups/", {"name": "release", "jobs": jobs})
        assert made.get("number"), made
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with browser.new_context(base_url=site.url) as context:
        one = context.new_page()
        wrong = watched(one)
        yield one
        assert wrong == []


def pages(site: Site) -> list[str]:
    """The address of each page."""
    worker = site.call("GET", "/dispatcher/workers/")["workers"][0]["id"]
    group = site.call("GET", "/dispatcher/groups/")["groups"][0]["number"]
    lists = ["/", "/jobs/", "/jobs/?q=state:failed+kind:no", "/groups/", "/queues/", "/workers/"]
    more = ["/actors/", "/schedules/", "/limits/", "/dispatchers/", "/filesets/", "/tokens/"]
    ones = ["/jobs/1", f"/groups/{group}", f"/workers/{worker}", "/audit/", "/sign-in"]
    return [*lists, *more, *ones]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1440])
def test_each_page_is_readable_and_has_labels(
    browser: Browser, site: Site, scheme: str, width: int
) -> None:
    """Labels and contrast are right, nothing is wider than the screen, no script breaks."""
    size = {"width": width, "height": 900}
    look = "dark" if scheme == "dark" else "light"
    with browser.new_context(base_url=site.url, color_scheme=look, viewport=size) as context:  # type: ignore[arg-type]
        page = context.new_page()
        wrong = watched(page)
        for path in pages(site):
            page.goto(path)
            assert faults(page) == [], path
        assert wrong == []


def test_pages_are_whole_without_scripts(browser: Browser, site: Site) -> None:
    with browser.new_context(base_url=site.url, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_label("Search", exact=True).fill("kind:add state:succeeded")
        page.get_by_role("button", name="Search").click()
        assert "kind%3Aadd" in page.url
        page.get_by_role("link", name="1", exact=True).click()
        expect(page.locator(".why")).to_contain_text("succeeded")
        expect(page.locator("main")).to_contain_text(str(2**60 + 1))
        expect(page.get_by_role("button", name="Submit one like this")).to_be_hidden()


def test_text_of_jobs_stays_text(page: Page, site: Site, tmp_path: Path) -> None:
    body = {"kind": "said", "args": {HOSTILE: HOSTILE}, "queue": "default", "labels": [HOSTILE]}
    number = site.call("POST", "/dispatcher/jobs/", body)["number"]
    jobs = [{"key": HOSTILE, "kind": "add", "args": {"a": 1, "b": 1}}]
    group = site.call("POST", "/dispatcher/groups/", {"name": HOSTILE, "jobs": jobs})
    places = [f"/jobs/{number}", "/jobs/", "/groups/", "/", f"/jobs/?q=%22{HOSTILE}%22"]
    places += [f"/groups/{group['number']}"] if "number" in group else []
    for path in places:
        page.goto(path)
        expect(page.locator("#live")).to_have_text("live")
        assert "owned" not in page.title()
        assert page.locator("main img, main script").count() == 0
    page.goto(f"/jobs/{number}")
    expect(page.locator("main")).to_contain_text(HOSTILE)


# live


def test_a_page_follows_what_happens(page: Page, site: Site, tmp_path: Path) -> None:
    """The state and the result change without a reload."""
    started, until = tmp_path / "started", tmp_path / "until"
    number = site.submit("hold", started=str(started), until=str(until))
    page.goto(f"/jobs/{number}")
    expect(page.locator(".heading .state")).to_contain_text("running")
    page.evaluate("document.body.dataset.same = 'yes'")
    until.touch()
    expect(page.locator(".heading .state")).to_contain_text("succeeded")
    expect(page.locator("main")).to_contain_text("held")
    assert page.evaluate("document.body.dataset.same") == "yes"


def test_a_search_looks_into_jobs(page: Page, site: Site) -> None:
    page.goto("/jobs/?q=arg.b:1152921504606846977")
    expect(page.locator(".region-jobs tbody tr")).to_have_count(1)
    expect(page.locator(".region-jobs tbody")).to_contain_text("add")
    page.goto("/jobs/?q=error:serialis+state:failed")
    expect(page.locator(".region-jobs tbody")).to_contain_text("unserialisable_async")
    page.goto("/jobs/?q=slover:3s")
    expect(page.get_by_role("alert")).to_contain_text("did you mean slower:?")


def test_a_hidden_tab_has_no_stream(page: Page, site: Site) -> None:
    page.goto("/")
    expect(page.locator("#live")).to_have_text("live")
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true" + tell)
    expect(page.locator("#live")).to_have_text("not live")
    page.evaluate(hide % "false" + tell)
    expect(page.locator("#live")).to_have_text("live")


def test_what_a_reader_opened_stays_open(page: Page, site: Site, tmp_path: Path) -> None:
    until = tmp_path / "until"
    number = site.submit("hold", started=str(tmp_path / "started"), until=str(until))
    page.goto(f"/jobs/{number}")
    expect(page.locator("#live")).to_have_text("live")
    page.locator(".region-values summary").first.click()
    assert not page.locator(".region-values details").first.evaluate("one => one.open")
    page.locator(".region-values summary").first.focus()
    until.touch()
    expect(page.locator(".heading .state")).to_contain_text("succeeded")
    assert not page.locator(".region-values details").first.evaluate("one => one.open")


def test_a_killed_worker_is_told_of(browser: Browser, tmp_path: Path) -> None:
    """The list of workers and the overview say so, while the page is open."""
    with running(tmp_path) as site, browser.new_context(base_url=site.url) as context:
        workers = site.call("GET", "/dispatcher/workers/")["workers"]
        [worker] = [one for one in workers if not one["gateway"]]
        page = context.new_page()
        page.goto("/workers/")
        expect(page.locator(".region-list")).to_contain_text(worker["name"])
        os.kill(worker["pid"], signal.SIGKILL)
        expect(page.locator(".region-gone")).to_contain_text(worker["name"], timeout=15_000)


# actions


def test_a_job_is_cancelled_retried_and_submitted_again(
    page: Page, site: Site, tmp_path: Path
) -> None:
    until = tmp_path / "until"
    number = site.submit("hold", started=str(tmp_path / "started"), until=str(until))
    page.goto(f"/jobs/{number}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Back").click()
    expect(page.locator(".heading .state")).not_to_contain_text("cancelled")
    page.get_by_role("button", name="Cancel").click()
    page.locator("dialog[open]").get_by_role("button", name="Cancel").click()
    expect(page.locator(".heading .state")).to_contain_text("cancelled")
    until.touch()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#toasts")).to_contain_text("ready again")
    expect(page.locator(".heading .state")).to_contain_text("succeeded")
    page.get_by_role("button", name="Submit one like this").click()
    page.locator("dialog textarea").fill("{")
    page.locator("dialog .go").click()
    expect(page.locator("dialog .problem")).to_contain_text("no JSON")
    page.locator("dialog textarea").fill('{"kind": "add", "args": {"a": 20, "b": 22}}')
    page.locator("dialog .go").click()
    expect(page.locator("h1")).to_contain_text("add")
    expect(page.locator("main")).to_contain_text("42")


def test_a_refusal_is_said_in_the_words_of_the_api(forgiving: Page) -> None:
    page = forgiving
    page.goto("/jobs/1")
    page.get_by_role("button", name="Submit one like this").click()
    page.locator("dialog textarea").fill('{"kind": "add", "args": {"a": "x", "b": 22}}')
    page.locator("dialog .go").click()
    expect(page.locator(".toast.bad")).to_contain_text("add")


@pytest.fixture
def forgiving(browser: Browser, site: Site) -> Iterator[Page]:
    """A page whose refused requests are no fault."""
    with browser.new_context(base_url=site.url) as context:
        yield context.new_page()


def test_a_queue_is_paused_and_goes_on(page: Page, site: Site) -> None:
    page.goto("/queues/")
    row = page.get_by_role("row").filter(has_text="default").filter(has=page.locator("button"))
    row.get_by_role("button", name="Pause").click()
    page.locator("dialog[open] .go").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).not_to_contain_text("paused")


def test_a_group_waits_at_its_gate_until_it_is_opened(page: Page, site: Site) -> None:
    jobs = [
        {"key": "gate", "gate": True},
        {"key": "last", "kind": "add", "args": {"a": 1, "b": 1}, "after": ["gate"]},
    ]
    group = site.call("POST", "/dispatcher/groups/", {"name": "gated", "jobs": jobs})["number"]
    page.goto(f"/groups/{group}")
    expect(page.locator(".graph")).to_contain_text("waiting")
    page.get_by_role("button", name="Open gate gate").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator(".heading .state")).to_contain_text("succeeded")
    expect(page.locator(".graph")).not_to_contain_text("waiting")
    box = page.locator(".graph svg")
    before = box.get_attribute("viewBox")
    page.get_by_role("button", name="Closer").click()
    assert box.get_attribute("viewBox") != before


def test_the_plan_of_a_retry_is_shown_first(page: Page, site: Site, tmp_path: Path) -> None:
    task = {"ran": str(tmp_path / "ran"), "seconds": 0.0}
    jobs = [
        {"key": "breaks", "kind": "task", "args": {**task, "key": "breaks", "fails": True}},
        {
            "key": "after",
            "kind": "task",
            "args": {**task, "key": "after", "fails": False},
            "after": ["breaks"],
        },
    ]
    group = site.call("POST", "/dispatcher/groups/", {"name": "breaking", "jobs": jobs})["number"]
    page.goto(f"/groups/{group}")
    expect(page.locator(".region-failed")).to_contain_text("1 could not run")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("dialog[open]")).to_contain_text("2 jobs run again: breaks, after")
    page.locator("dialog[open] .go").click()
    expect(page.locator(".region-facts")).to_contain_text("round2")


def test_a_worker_is_drained(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path) as site, browser.new_context(base_url=site.url) as context:
        page = context.new_page()
        page.goto("/workers/")
        page.get_by_role("button", name="Drain").first.click()
        page.locator("dialog[open] .go").click()
        expect(page.locator(".region-gone table")).to_be_visible(timeout=15_000)


# the keyboard


def test_everything_is_reached_by_keys(page: Page, site: Site) -> None:
    page.goto("/")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs/")
    page.keyboard.press("/")
    page.keyboard.type("kind:add")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/?q=kind%3Aadd")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


# where it lies, and who may


class _Prefix(BaseHTTPRequestHandler):
    """A proxy that puts a gateway below /ops/queue/."""

    gateway = ""
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        place = urlsplit(self.gateway)
        path = self.path.removeprefix("/ops/queue")
        if path == self.path:
            self.send_error(404)
            return
        length = int(self.headers.get("Content-Length", 0))
        headers = {name: value for name, value in self.headers.items() if name != "Connection"}
        with closing(HTTPConnection(place.netloc, timeout=30)) as link, suppress(OSError):
            link.request(self.command, path, self.rfile.read(length), headers)
            answer = link.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.end_headers()
            while data := answer.read1():
                self.wfile.write(data)
                self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def prefixed(site: Site) -> Iterator[str]:
    handler = type("Handler", (_Prefix,), {"gateway": site.url})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/ops/queue/"
    server.shutdown()
    server.server_close()


def test_behind_a_prefix_everything_is_right(browser: Browser, prefixed: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        wrong = watched(page)
        page.goto(prefixed)
        expect(page.locator("#live")).to_have_text("live")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_role("link", name="1", exact=True).click()
        expect(page.locator(".why")).to_contain_text("succeeded")
        assert page.url.startswith(f"{prefixed}jobs/")
        page.get_by_role("button", name="Submit one like this").click()
        page.locator("dialog .go").click()
        page.wait_for_url(re.compile(re.escape(prefixed) + r"jobs/\d+$"))
        for where in ("Groups", "Actors", "Limits", "Filesets", "Overview"):
            page.get_by_role("link", name=where, exact=True).click()
            expect(page.locator("#live")).to_have_text("live")
        assert wrong == []


def test_with_tokens_one_signs_in_and_out(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, http_auth="required") as site, browser.new_context() as context:
        connect = ["--connect", site.process.facts["frontend"]]
        made = run("token", "create", "--name", "reader", "--role", "read", *connect)
        token = re.search(r"ls_\S+", made.stdout)
        assert token, made
        page = context.new_page()
        page.goto(f"{site.url}/jobs/?q=kind:add")
        page.get_by_label("Token").fill("ls_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("[role=alert]")).to_contain_text("no token")
        page.get_by_label("Token").fill(token[0])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("h1")).to_have_text("Jobs")
        assert page.url == f"{site.url}/jobs/?q=kind:add"
        [cookie] = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.goto(f"{site.url}/queues/")
        assert page.get_by_role("button", name="Pause").count() == 0
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("h1")).to_have_text("Sign in")
