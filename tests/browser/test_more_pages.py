"""The pages beside jobs and groups in a real browser: what they show, and each action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from longshore.testing.processes import run
from tests.browser.dashboard import Site, faults, launched, running, watched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with running(folder, "--app", "quays:app", files=folder / "files") as found:
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


def test_the_overview_tells_what_these_pages_know(page: Page, site: Site, tmp_path: Path) -> None:
    until = tmp_path / "until"
    for _ in range(2):
        site.submit("hoist", crane="C9", until=str(until))
    start(site, "wreck", ship="Hull")
    send(site, "wreck", "sink")
    put(site, "sinking", every_s=1, pause_after=1, job={"kind": "founder"})
    page.goto("/")
    told = page.locator(".region-troubles")
    expect(told).to_contain_text("key crane=C9 is full (1 of 1 in use)", timeout=15_000)
    expect(told).to_contain_text("schedule 'sinking' is paused", timeout=15_000)
    told.get_by_role("link", name="of type 'Berth' failed").click()
    expect(page.locator(".region-list")).to_contain_text("wreck")
    page.goto("/")
    told.get_by_role("link", name="schedule 'sinking'").click()
    expect(page.locator("h1")).to_contain_text("sinking")
    page.goto("/")
    told.get_by_role("link", name="key crane=C9").click()
    expect(page.locator(".region-list")).to_contain_text("crane=C9")
    until.touch()
    page.goto("/schedules/sinking")
    page.get_by_role("button", name="Remove").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator("#toasts")).to_contain_text("Removed")


# dispatchers and gateways


def test_dispatchers_say_what_they_attend(page: Page, site: Site) -> None:
    page.goto("/dispatchers/")
    row = page.locator(".region-list tbody tr")
    expect(row).to_contain_text("answers this gateway")
    expect(page.locator(".region-gateways tbody")).to_contain_text(site.url)
    row.get_by_role("link").first.click()
    expect(page.locator("h1")).to_contain_text("Worker")


# filesets


@pytest.fixture(scope="module")
def fileset(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fileset with two versions, which differ in two files."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "many").mkdir()
    for number in range(30):
        (folder / "many" / f"{number}.txt").write_text(str(number))
    for version in ("one", "two"):
        (folder / "same.txt").write_text("same")
        (folder / "text.txt").write_text(version * 2)
        (folder / f"{version}.txt").write_text("")
        pushed = run("filesets", "push", "cargo", str(folder), "--connect", site.url)
        assert "cargo@" in pushed.stdout, pushed
    return "cargo"


def test_a_version_shows_its_files_folded_and_what_differs(
    page: Page, site: Site, fileset: str
) -> None:
    page.goto("/filesets/")
    page.get_by_role("link", name=fileset).click()
    expect(page.locator(".region-list tbody tr")).to_have_count(2)
    page.get_by_role("link", name="with 1").click()
    expect(page.locator("main tbody tr")).to_have_count(2)
    expect(page.locator("main tbody")).to_contain_text("changed")
    page.get_by_role("link", name="all its files").click()
    expect(page.locator("main details")).not_to_have_attribute("open", "")
    with page.expect_download() as coming:
        page.get_by_role("link", name="text.txt").click()
    assert coming.value.path().read_text() == "twotwo"
    changes = site.call("GET", "/dispatcher/filesets/cargo/2/changes?against=1&limit=1")
    assert (changes["changes"][0]["change"], changes["next"]) == ("changed", 1)


def test_a_version_is_removed_and_what_nothing_needs_is_counted_first(
    page: Page, site: Site, fileset: str
) -> None:
    page.goto(f"/filesets/{fileset}")
    page.get_by_role("button", name="Remove version 1").click()
    page.locator("dialog[open] .go").click()
    expect(page.locator(".region-list tbody tr")).to_have_count(1)
    page.goto("/filesets/")
    page.get_by_role("button", name="Collect unused bytes").click()
    expect(page.locator("dialog[open]")).to_contain_text("Nothing needs")
    page.locator("dialog[open] .go").click()
    expect(page.locator("#toasts")).to_contain_text("within the hour")


# tokens and the audit


def test_an_admin_makes_and_revokes_a_token_which_is_shown_once(
    browser: Browser, site: Site
) -> None:
    connect = ["--connect", site.process.facts["frontend"]]
    made = run("token", "create", "--name", "chief", "--role", "admin", *connect)
    token = re.search(r"ls_\S+", made.stdout)
    assert token, made
    with browser.new_context(base_url=site.url) as context:
        page = context.new_page()
        page.goto("/tokens/")
        assert page.get_by_role("button", name="Make a token").count() == 0
        page.get_by_role("link", name="sign in").click()
        page.get_by_label("Token").fill(token[0])
        page.get_by_role("button", name="Sign in").click()
        page.goto("/tokens/")
        page.get_by_role("button", name="Make a token").click()
        page.locator("dialog").get_by_label("name").fill("builder")
        page.locator("dialog").get_by_label("queues").fill("default, mail")
        page.locator("dialog[open] .go").click()
        expect(page.locator("dialog .shown")).to_contain_text("ls_")
        secret = page.locator("dialog .shown").text_content() or "nothing"
        page.get_by_role("button", name="Close").last.click()
        row = page.locator(".region-list tr").filter(has_text="builder")
        expect(row).to_contain_text("queues default, mail")
        expect(page.locator("dialog .shown")).to_have_count(0)  # it goes a moment after the close
        assert secret not in page.content()
        page.get_by_role("button", name="Revoke builder").click()
        page.locator("dialog[open] .go").click()
        expect(row).to_contain_text("revoked")
        page.goto("/audit/?action=create_token")
        expect(page.locator(".region-list tbody")).to_contain_text("builder")
        page.get_by_role("link", name="chief").first.click()
        expect(page.locator(".region-list tbody tr")).not_to_have_count(0)


# all of them


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1440])
def test_pages_with_much_on_them_are_readable_and_have_labels(
    browser: Browser, site: Site, fileset: str, scheme: str, width: int
) -> None:
    """Labels and contrast are right, nothing is wider than the screen, no script breaks."""
    site.call("PUT", "/dispatcher/limits/tenant%3D*", {"concurrency": 2, "rate": "100/min"})
    key, schedule = f"sunk-{width}-{scheme}", f"weekly-{width}-{scheme}"
    start(site, key, ship="Ilion")
    send(site, key, "sink")
    put(site, schedule, cron="0 4 * * 1")
    size = {"width": width, "height": 900}
    paths = [
        "/actors/",
        f"/{at('north/0')}",
        f"/{at(key)}",
        "/schedules/",
        f"/schedules/{schedule}",
    ]
    paths += ["/limits/", "/dispatchers/", f"/filesets/{fileset}", f"/filesets/{fileset}/2"]
    with browser.new_context(base_url=site.url, color_scheme=scheme, viewport=size) as context:  # type: ignore[arg-type]
        page = context.new_page()
        wrong = watched(page)
        for path in paths:
            page.goto(path)
            assert faults(page) == [], path
        assert wrong == []


def test_the_keys_lead_to_every_page(page: Page, site: Site) -> None:
    page.goto("/")
    for key, title in (("a", "Actors"), ("s", "Schedules"), ("l", "Limits"), ("f", "Filesets")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("h1")).to_have_text(title)
    page.goto("/actors/")
    expect(page.locator("#live")).to_have_text("live")
    page.locator("main").press("j")
    page.locator("main").press("Enter")
    expect(page.locator(".region-list tbody tr").first).to_contain_text("Berth")


def test_text_of_actors_and_schedules_stays_text(page: Page, site: Site) -> None:
    hostile = '<img src=x onerror="document.title=1">'
    start(site, "hostile", ship=hostile)
    put(site, "hostile", cron="0 5 * * *", job={"kind": "tally", "args": {"pages": 1}})
    note = {"note": hostile}
    site.call("POST", "/dispatcher/schedules/hostile/pause", note)
    for path in ("/actors/", f"/{at('hostile')}", "/schedules/", "/schedules/hostile"):
        page.goto(path)
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator("main")).to_contain_text(hostile)
        assert page.locator("main img").count() == 0
