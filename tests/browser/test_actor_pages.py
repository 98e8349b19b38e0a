"""The pages of actors in a real browser: what they show, and each action."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.dashboard import Site, launched, running, watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("site"), "--app", "quays:app") as found:
        for number in range(3):
            start(found, f"north/{number}", ship=f"ship-{number}", size=number)
        yield found


def start(site: Site, key: str, **fields: object) -> None:
    body = {"type": "Berth", "key": key, "fields": fields}
    assert "id" in site.call("POST", "/dispatcher/actors/", body)


def at(key: str) -> str:
    """The path of an actor, of its page or below /dispatcher/."""
    return f"actors/Berth/{key.replace('/', '%2F')}"


def send(site: Site, key: str, name: str, **args: object) -> None:
    body = {"name": name, "args": args}
    assert "id" in site.call("POST", f"/dispatcher/{at(key)}/messages", body)


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with browser.new_context(base_url=site.url) as context:
        one = context.new_page()
        wrong = watched(one)
        yield one
        assert wrong == []


def test_actors_are_found_by_type_status_and_listed_field(page: Page, site: Site) -> None:
    page.goto("/actors/")
    expect(page.locator(".region-types tbody")).to_contain_text("Berth")
    page.get_by_label("Type", exact=True).select_option("Berth")
    page.get_by_label("Listed fields").fill("ship=ship-1")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".region-list tbody tr")).to_have_count(1)
    expect(page.locator(".region-list tbody")).to_contain_text("north/1")
    page.goto("/actors/?status=failed&type=Berth&fields=ship%3Dnone")
    expect(page.locator(".region-list")).to_contain_text("no actor matches")
    page.goto("/actors/?fields=ship%3Dnone")
    expect(page.get_by_role("alert")).to_contain_text("name the type")


def test_a_message_is_sent_and_asked_by_the_fields_of_its_schema(page: Page, site: Site) -> None:
    start(site, "east", ship="Amalfi")
    page.goto(f"/{at('east')}")
    page.get_by_role("button", name="Send grow").click()
    page.get_by_label("by", exact=False).first.fill("one")
    page.locator("dialog .go").click()
    assert page.locator("dialog[open]").count() == 1, "no whole number, so nothing is sent"
    page.get_by_label("by", exact=False).first.fill(str(2**60))
    page.locator("dialog .go").click()
    expect(page.locator("#toasts")).to_contain_text("in its mailbox")
    expect(page.locator(".region-state")).to_contain_text(str(2**60 + 1))
    page.get_by_role("button", name="Ask moor").click()
    page.get_by_label("ship", exact=False).fill("Brest")
    page.get_by_label("side", exact=False).select_option("port")
    page.locator("dialog .go").click()
    expect(page.locator("dialog .shown")).to_contain_text("Brest lies to port")


def test_a_state_is_edited_only_as_it_was_seen(browser: Browser, site: Site) -> None:
    start(site, "south", ship="Cadiz")
    with browser.new_context(base_url=site.url) as context:
        page = context.new_page()
        page.goto(f"/{at('south')}")
        expect(page.locator(".region-state")).to_contain_text("notes")
        page.get_by_role("button", name="Edit the state").click()
        page.locator("dialog textarea").fill('{"ship": "Delft", "size": 7, "notes": []}')
        page.locator("dialog .go").click()
        expect(page.locator(".region-state")).to_contain_text("Delft")
        expect(page.locator(".region-turns")).to_contain_text("an edit")
        page.get_by_role("button", name="Edit the state").click()
        send(site, "south", "grow", by=1)
        expect(page.locator(".region-state")).to_contain_text("size: 8")
        page.locator("dialog .go").click()
        expect(page.locator(".toast.bad")).to_contain_text("another turn meanwhile")
        expect(page.locator(".region-state")).to_contain_text("size: 8")


def test_a_failed_actor_is_repaired_by_its_mailbox(page: Page, site: Site) -> None:
    start(site, "west", ship="Essen")
    send(site, "west", "sink")
    send(site, "west", "grow", by=1)
    page.goto(f"/{at('west')}")
    expect(page.locator(".region-error")).to_contain_text("Essen sinks: a hole")
    expect(page.locator(".region-mail tbody tr")).to_have_count(2)
    first = page.locator(".region-mail tbody tr").first
    first.get_by_role("button", name="Park").click()
    expect(first).to_contain_text("parked")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".region-state")).to_contain_text("size: 2")
    expect(page.locator(".region-mail tbody tr")).to_have_count(1)
    first.get_by_role("button", name="Put back").click()
    expect(page.locator(".heading .state")).to_contain_text("failed")
    first.get_by_role("button", name="Drop").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator(".region-mail")).to_contain_text("read all its messages")


def test_an_actor_is_paused_resumed_restarted_and_stopped(page: Page, site: Site) -> None:
    start(site, "rest", ship="Faro", size=9)
    send(site, "rest", "leave_at", after_s=9000)
    page.goto(f"/{at('rest')}")
    expect(page.locator(".region-timers tbody")).to_contain_text("leave")
    expect(page.locator(".why")).to_contain_text("timer 'leave'")
    page.get_by_role("button", name="Pause").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator(".heading .state")).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".heading .state")).to_contain_text("sleeping")
    page.get_by_role("button", name="Restart").click()
    page.get_by_label("ship", exact=False).fill("Genoa")
    page.locator("dialog[open] .go").click()
    expect(page.locator(".region-state")).to_contain_text("Genoa")
    expect(page.locator(".region-timers")).to_contain_text("it has set none")
    page.get_by_role("button", name="Stop").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator("#toasts")).to_contain_text("removed")
    assert site.call("GET", f"/dispatcher/{at('rest')}")["status"] == 404
