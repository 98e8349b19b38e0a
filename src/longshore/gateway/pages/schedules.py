"""The list of schedules, and the page of one: its times, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final
from urllib.parse import quote

from msgspec import Meta, Struct, structs

from longshore.client import jsonable
from longshore.core.access import Right
from longshore.core.occurrences import next_times
from longshore.core.schedule_words import local_text, spec_texts
from longshore.core.timing import span
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.forms import Dialog, Field, button
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.gateway.pages.tree import tree
from longshore.model.job import DEFAULT_QUEUE
from longshore.model.schedule import Fate, Fire, Rules, Schedule, ScheduleView, Timing

PAGE_SCHEDULES: Final = 50
NEXT_TIMES: Final = 10
MOST_FIRES: Final = 500


class SchedulesQuery(Struct, frozen=True):
    """Which schedules to list."""

    after: str = ""


class Seen(Struct, frozen=True):
    """A page of the list."""

    after: str
    schedules: Sequence[Schedule]


async def look(call: Call) -> Seen:
    """Asks for a page of schedules."""
    after = call.query(SchedulesQuery).after
    return Seen(after, await call.connection.schedules.list(after, PAGE_SCHEDULES))


@lru_cache(maxsize=2_000)
def times_after(timing: Timing, after: datetime, most: int) -> Sequence[datetime]:
    """The next nominal times after those that are decided."""
    return next_times(timing, after, most)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the list."""
    return {
        "search": parts.heading("Schedules"),
        "list": joined(_table(seen.schedules, view), _paging(seen, view)),
    }


def _table(schedules: Sequence[Schedule], view: View) -> Html:
    rows = [
        [
            schedule_link(view.root, one.new.name),
            state_of(one),
            h("code", ", ".join(spec_texts(one))),
            _submits(one, view),
            _next(one),
            parts.when(one.state.last_success_at),
            parts.number(one.state.failures) if one.state.failures else None,
            one.state.note or None,
        ]
        for one in schedules
    ]
    heads = ("schedule", "state", "times", "submits", "next", "last success", "failures#", "note")
    empty = "no schedules; `longshore schedules add` makes one"
    return parts.table(heads, rows, "Schedules by name", empty=empty)


def schedule_link(root: str, name: str) -> Html:
    """A link to a schedule."""
    return h("a", name, href=parts.url(root, "schedules", name))


def state_of(one: Schedule) -> Html:
    """Whether it goes on, is paused, or has no more times."""
    if one.state.paused_at is not None:
        return parts.state("paused")
    return parts.state("active" if one.look_at is not None else "over")


def _next(one: Schedule) -> Html | None:
    if one.state.paused_at is not None or one.look_at is None:
        return None
    times = times_after(one.new.timing, one.state.decided_to, 1)
    return _time(times[0], one.new.timing) if times else None


def _time(at: datetime, timing: Timing) -> Html:
    """A nominal time: as clocks show it in its zone, with the offset, and how long that is off."""
    there = h("span", local_text(at, timing).replace("T", " "), class_="num")
    return h("span", there, " ", h("span", parts.when(at), class_="muted"))


def _submits(one: Schedule, view: View) -> Html | str:
    new = one.new
    if new.job is not None:
        return h("a", new.job.kind, href=parts.jobs_url(view.root, f"kind:{new.job.kind}"))
    if new.group is None:
        return ""
    name = new.group.head.name
    where = h("a", name, href=f"{view.root}groups/{parts.url('', name=name)}")
    return h("span", "group ", where, f" of {new.group.head.jobs:,} jobs")


def _paging(seen: Seen, view: View) -> Html:
    links, here = [], f"{view.root}schedules/"
    if seen.after:
        links.append(h("a", "First", href=here, rel="first"))
    if len(seen.schedules) == PAGE_SCHEDULES:
        more = parts.url("", after=seen.schedules[-1].new.name)
        links.append(h("a", "More", href=here + more, rel="next"))
    return h("nav", links, class_="paging", aria_label="More schedules")


# one schedule


class ScheduleQuery(Struct, frozen=True):
    """How many of its newest fires to show."""

    fires: Annotated[int, Meta(ge=1, le=MOST_FIRES)] = 25


class OneSeen(Struct, frozen=True):
    """What the page of one schedule shows."""

    schedule: Schedule
    fires: Sequence[Fire]
    why: str
    most: int


async def look_at(call: Call) -> OneSeen:
    """Asks for a schedule and its newest fires."""
    most = call.query(ScheduleQuery).fires
    found: ScheduleView = await call.connection.schedules.show(call.name("name"), most)
    return OneSeen(found.schedule, found.fires, found.text, most)


def show_one(seen: OneSeen, view: View) -> Regions:
    """The regions of the page of one schedule."""
    return {
        "head": _head(seen, view),
        "facts": _facts(seen.schedule, view),
        "times": _times(seen.schedule),
        "fires": _fires(seen, view),
        "submits": _what(seen.schedule, view),
    }


def _head(seen: OneSeen, view: View) -> Html:
    one = seen.schedule
    title = joined("Schedule ", h("span", one.new.name, class_="kind"))
    buttons = _actions(one) if view.may(Right.SUBMIT) else []
    why = h("p", h("strong", "Why: "), seen.why, class_="why")
    return joined(parts.heading(title, state_of(one), buttons), why)


def _actions(one: Schedule) -> list[Html]:
    name, path = one.new.name, f"dispatcher/schedules/{quote(one.new.name, safe='')}"
    words = f"Submit what {name} submits, now, whatever runs?"
    trigger = parts.action("Trigger", "POST", f"{path}/trigger", confirm=words, done="Triggered.")
    if one.state.paused_at is None:
        turn = button("Pause", "POST", f"{path}/pause", _pausing(name))
    else:
        turn = parts.action("Resume", "POST", f"{path}/resume", done=f"{name} goes on.")
    backfill = button("Backfill", "POST", f"{path}/backfill", _backfilling(name))
    words = f"Remove the schedule {name}? What it submitted stays."
    remove = parts.action("Remove", "DELETE", path, confirm=words, danger=True, done="Removed.")
    return [trigger, turn, backfill, remove]


def _pausing(name: str) -> Dialog:
    return Dialog(
        title=f"Pause {name}",
        words="Its times are skipped until it is resumed.",
        fields=[Field(name="note", label="note", hint="why; everybody sees it")],
        done=f"{name} is paused.",
    )


def _backfilling(name: str) -> Dialog:
    return Dialog(
        title=f"Backfill {name}",
        words="Which of its times were not submitted is shown first.",
        fields=[
            Field(name="first", label="from", kind="time", hint="UTC", required=True),
            Field(name="last", label="to", kind="time", hint="UTC", required=True),
        ],
        plan="body",
        done="The times are queued.",
    )


def _facts(one: Schedule, view: View) -> Html:
    new, state = one.new, one.state
    specs = [[h("br") if at else None, h("code", text)] for at, text in enumerate(spec_texts(one))]
    by = f" by {state.paused_by}" if state.paused_by else ""
    paused = joined(parts.when(state.paused_at), by) if state.paused_at else None
    return parts.section(
        "Facts",
        parts.facts(
            [
                ("times", joined(specs)),
                ("but not", ", ".join(new.timing.exclude)),
                ("from", parts.when(new.timing.starts_at)),
                ("until", parts.when(new.timing.ends_at)),
                ("jitter", span(new.timing.jitter_s) if new.timing.jitter_s else None),
                ("submits", _submits(one, view)),
                *_rules(new.rules),
                ("paused", paused),
                ("note", state.note),
                ("failures", f"{state.failures:,} in a row" if state.failures else None),
                ("last success", parts.when(state.last_success_at)),
                ("app", new.app),
                ("by", new.by),
                ("made", parts.when(one.created_at)),
                ("id", h("code", str(new.id))),
            ]
        ),
    )


def _rules(rules: Rules) -> list[tuple[str, str | None]]:
    after = f"after {rules.pause_after:,} failures in a row" if rules.pause_after else None
    missed = f"{rules.catchup}, {span(rules.window_s)} back"
    return [
        ("overlap", str(rules.overlap).replace("_", " ")),
        ("missed times", missed if rules.catchup != "none" else "none"),
        ("pauses", after),
    ]


def _times(one: Schedule) -> Html:
    timing = one.new.timing
    times = times_after(timing, one.state.decided_to, NEXT_TIMES)
    listed = [h("li", _time(at, timing)) for at in times]
    title = f"Its next {NEXT_TIMES} times" if len(times) == NEXT_TIMES else "Its next times"
    none = h("p", "it has no more times", class_="muted")
    body = h("ol", listed, class_="times") if listed else none
    is_paused = one.state.paused_at is not None and listed
    note = h("p", "While it is paused, they are skipped.", class_="muted") if is_paused else None
    return parts.section(title, note, body)


def _fires(seen: OneSeen, view: View) -> Html:
    timing = seen.schedule.new.timing
    rows = [_fire(fire, timing, view) for fire in in_spans(seen.fires)]
    heads = ("nominal time", "times#", "fate", "submitted", "outcome", "ended", "why")
    body = parts.table(heads, rows, "Its times so far", empty="none of its times has come yet")
    more = None
    if len(seen.fires) == seen.most < MOST_FIRES:
        here = parts.url(view.root, "schedules", seen.schedule.new.name, fires=MOST_FIRES)
        more = h("nav", h("a", "Older", href=here, rel="next"), class_="paging", aria_label="Older")
    return parts.section("What became of its times", body, more)


def in_spans(fires: Sequence[Fire]) -> list[Fire]:
    """The fires, newest first; those in a row that submitted nothing for one reason are one."""
    found: list[Fire] = []
    for fire in fires:
        last = found[-1] if found else None
        if last is not None and _is_alike(last, fire):
            until = last.last_at or last.nominal_at
            count = last.count + fire.count
            found[-1] = structs.replace(fire, last_at=until, count=count)
        else:
            found.append(fire)
    return found


def _is_alike(one: Fire, other: Fire) -> bool:
    if one.fate not in (Fate.SKIPPED, Fate.EXPIRED):
        return False
    return (one.fate, one.why, None) == (other.fate, other.why, other.subject)


def _fire(fire: Fire, timing: Timing, view: View) -> list[Html | str | None]:
    fate = "to be submitted" if fire.pending else fire.fate.value
    first = local_text(fire.nominal_at, timing).replace("T", " ")
    last = f" to {local_text(fire.last_at, timing).replace('T', ' ')}" if fire.last_at else ""
    return [
        h("span", first, last, class_="num"),
        parts.number(fire.count) if fire.count > 1 else None,
        parts.state(fate),
        _subject(fire, view),
        parts.state(fire.outcome) if fire.outcome else None,
        parts.when(fire.ended_at),
        fire.why or None,
    ]


def _subject(fire: Fire, view: View) -> Html | None:
    if fire.subject is None or fire.fate is Fate.QUEUED:
        return None
    place, word = ("groups", "group") if fire.is_group else ("jobs", "job")
    return h(
        "a", f"{word} {str(fire.subject)[-8:]}", href=parts.url(view.root, place, fire.subject)
    )


def _what(one: Schedule, view: View) -> Html:
    job = one.new.job
    if job is None:
        return NOTHING
    if not view.sees_payloads or job.options.raw:
        return NOTHING
    queue = None if job.queue == DEFAULT_QUEUE else h("p", "in queue ", h("code", job.queue))
    args = tree(jsonable.payload(job.args))
    return parts.section(f"Arguments of {job.kind}", queue, args)


SCHEDULES: Final = Page(
    path="/schedules/",
    id="page_schedules",
    title=lambda _: "Schedules",
    look=look,
    show=show,
    query=SchedulesQuery,
)
SCHEDULE: Final = Page(
    path="/schedules/{name}",
    id="page_schedule",
    title=lambda seen: f"Schedule {seen.schedule.new.name}",
    look=look_at,
    show=show_one,
    query=ScheduleQuery,
)
