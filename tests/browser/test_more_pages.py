"""The pages beside jobs and groups in a real browser: what they show, and each action."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


# actors


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


# schedules


def put(site: Site, name: str, **fields: object) -> None:
    body = {"name": name, "job": {"kind": "tally", "args": {"pages": 3}}, **fields}
    assert site.call("POST", "/dispatcher/schedules/", body).get("name") == name


def test_a_schedule_is_triggered_paused_with_a_note_and_resumed(page: Page, site: Site) -> None:
    put(site, "nightly", cron="0 2 * * *", tz="Europe/Berlin")
    page.goto("/schedules/")
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("0 2 * * * (Europe/Berlin)")
    expect(row).to_contain_text(" 02:00:00+0")
    row.get_by_role("link", name="nightly").click()
    expect(page.locator(".times li")).to_have_count(10)
    expect(page.locator(".region-submits")).to_contain_text("pages: 3")
    page.get_by_role("button", name="Trigger").click()
    page.locator("dialog[open] .go").click()
    fire = page.locator(".region-fires tbody tr").first
    expect(fire).to_contain_text("succeeded")
    expect(fire).to_contain_text("by hand")
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("note", exact=False).fill("until the move")
    page.locator("dialog[open] .go").click()
    expect(page.locator(".why")).to_contain_text("until the move")
    page.goto("/schedules/")
    expect(row).to_contain_text("until the move")
    row.get_by_role("link", name="nightly").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".heading .state")).to_contain_text("active")
    page.goto("/schedules/nightly")
    fire.get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("tally")


def test_a_backfill_shows_its_times_first(page: Page, site: Site) -> None:
    put(site, "daily", cron="0 4 * * *")
    page.goto("/schedules/daily")
    expect(page.locator(".region-fires")).to_contain_text("none of its times has come")
    page.get_by_role("button", name="Backfill").click()
    page.get_by_label("from", exact=False).fill("2024-02-28T00:00:00")
    page.get_by_label("to", exact=False).fill("2024-03-01T00:00:00")
    page.locator("dialog[open] .go").click()
    told = page.locator("dialog[open]")
    expect(told).to_contain_text("2 times are submitted (UTC): 2024-02-28 04:00:00, 2024-02-29")
    told.get_by_role("button", name="Back", exact=True).click()
    assert site.call("GET", "/dispatcher/schedules/daily")["fires"] == []
    page.get_by_role("button", name="Backfill").click()
    page.get_by_label("from", exact=False).fill("2024-02-28T00:00:00")
    page.get_by_label("to", exact=False).fill("2024-03-01T00:00:00")
    page.locator("dialog[open] .go").click()
    expect(told).to_contain_text("2 times")
    told.locator(".go").click()
    expect(page.locator(".region-fires tbody tr")).to_have_count(2)
    expect(page.locator(".region-fires tbody tr").last).to_contain_text("succeeded")


def test_a_schedule_is_removed_and_what_it_submitted_stays(page: Page, site: Site) -> None:
    put(site, "once", cron="0 5 * * *")
    page.goto("/schedules/once")
    page.get_by_role("button", name="Remove").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator("#toasts")).to_contain_text("Removed")
    page.goto("/schedules/")
    expect(page.locator(".region-list")).not_to_contain_text("once")


# limits


def test_a_full_key_is_seen_and_its_rule_set_changed_and_removed(
    page: Page, site: Site, tmp_path: Path
) -> None:
    until = tmp_path / "until"
    numbers = [site.submit("hoist", crane="C1", until=str(until)) for _ in range(3)]
    page.goto("/limits/")
    row = page.locator(".region-list tr").filter(has_text="crane=C1")
    expect(row).to_contain_text("1 / 1")
    expect(row).to_contain_text("full")
    expect(row).to_contain_text("jobs wait")
    expect(row.get_by_role("link")).to_have_text(str(numbers[0]))
    page.get_by_role("button", name="Set a rule").click()
    page.locator("dialog").get_by_label("keys").fill("crane=*")
    page.get_by_label("at once", exact=False).first.fill("2")
    page.locator("dialog[open] .go").click()
    expect(row).to_contain_text("2 / 2")
    expect(row).to_contain_text("the rule for crane=*")
    rule = page.locator(".region-rules tr").filter(has_text="crane=*")
    rule.get_by_role("button", name="Change").click()
    page.get_by_label("at once", exact=False).first.fill("4")
    page.get_by_label("rate", exact=False).first.fill("100/min")
    page.locator("dialog[open] .go").click()
    expect(row).to_contain_text("3 / 4")
    expect(rule).to_contain_text("100/min")
    rule.get_by_role("button", name="Remove").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator(".region-rules")).to_contain_text("no rules")
    until.touch()
    page.goto("/limits/?show=waiting")
    expect(page.locator(".region-list")).to_contain_text("no job with a limit")
