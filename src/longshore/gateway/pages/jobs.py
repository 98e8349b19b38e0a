"""The list of jobs, with its search."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct, structs

from longshore.client.searching import search
from longshore.core.group_words import shown_state
from longshore.core.job_query import JobQuery, parse, term, written
from longshore.errors import LongshoreError
from longshore.gateway.models import Number
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.on_all import SHOWN_BULKS, bulks_list, on_all_form
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.bulk import BulkRun
from longshore.model.job import DEFAULT_QUEUE, Job, JobPage, JobState

PAGE_JOBS: Final = 50
_QUICK: Final = ("", "live", "ready", "running", "failed", "ended")


class JobsQuery(Struct, frozen=True):
    """Which jobs to list."""

    q: str = ""
    before: Number | None = None


class Seen(Struct, frozen=True):
    """A page of the list."""

    text: str
    query: JobQuery
    before: int | None
    page: JobPage
    error: str = ""
    bulks: tuple[BulkRun, ...] = ()


async def look(call: Call) -> Seen:
    """Searches; what is wrong with the search is a part of the answer."""
    given = call.query(JobsQuery)
    query = parse(given.q)
    try:
        now = datetime.now(UTC)
        page, error = await search(call.connection, query, now, given.before, PAGE_JOBS), ""
    except LongshoreError as problem:
        page, error = JobPage(), str(problem)
    bulks = await call.connection.bulks.list(most=SHOWN_BULKS)
    return Seen(given.q, query, given.before, page, error, bulks)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the list."""
    return {
        "search": joined(parts.heading("Jobs"), _search(seen), _quick(seen, view), _errors(seen)),
        "on-all": joined(_on_all(seen, view)),
        "bulks": joined(bulks_list(seen.bulks, view)),
        "jobs": joined(jobs_table(seen.page.jobs, view), _paging(seen, view)),
    }


def _search(seen: Seen) -> Html:
    box = h(
        "input",
        type="search",
        name="q",
        value=seen.text,
        aria_label="Search",
        placeholder="kind:report state:failed arg.tenant:acme error:timeout older:2h slower:30s",
        autocomplete="off",
    )
    return h("form", box, h("button", "Search", type="submit"), class_="query", role="search")


def _quick(seen: Seen, view: View) -> Html:
    """Links that only change the states of the search."""
    links = []
    for word in _QUICK:
        states = parse(f"state:{word}").states if word else ()
        text = written(structs.replace(seen.query, states=(), number=None))
        query = f"{text} state:{word}".strip() if word else text
        is_here = set(states) == set(seen.query.states)
        href = parts.jobs_url(view.root, query)
        links.append(h("a", word or "all", href=href, aria_current="true" if is_here else None))
    return h("nav", links, class_="chips", aria_label="States")


def _errors(seen: Seen) -> Html | None:
    words = [*seen.query.errors, *([seen.error] if seen.error else [])]
    return (
        h("ul", [h("li", one) for one in words], class_="problem", role="alert") if words else None
    )


def _on_all(seen: Seen, view: View) -> Html | None:
    """What can be done to all that match; not to one job, nor to all that there are."""
    query = seen.query
    if seen.error or query.errors or query.number is not None or not written(query):
        return None
    return on_all_form(seen.text, view)


def jobs_table(jobs: Sequence[Job], view: View) -> Html:
    """Jobs, one a row."""
    rows = [_row(job, view) for job in jobs]
    heads = ("job#", "state", "kind", "queue", "submitted", "took#", "says")
    return parts.table(heads, rows, "Jobs, newest first", empty="no job matches")


def _row(job: Job, view: View) -> list[Html | str | None]:
    state = shown_state(job)
    kind = h("a", job.kind, href=parts.jobs_url(view.root, term("kind", job.kind)))
    queue = h("a", job.queue, href=parts.jobs_url(view.root, term("queue", job.queue)))
    return [
        parts.job_link(view.root, job.number),
        parts.state(state),
        kind,
        h("span", queue, class_="muted") if job.queue == DEFAULT_QUEUE else queue,
        parts.when(job.created_at),
        joined(parts.took(job.started_at, None if state is JobState.RUNNING else job.ended_at))
        if job.started_at and (job.ended_at or state is JobState.RUNNING)
        else None,
        says(job),
    ]


def says(job: Job) -> Html | str | None:
    """What there is to say of a job in a list: how far it is, or its error."""
    if job.progress is not None:
        return progress(job)
    if job.error is not None:
        return h("span", parts.error_words(job.error), class_="error")
    if job.state is JobState.DELAYED:
        return joined("runs ", parts.when(job.run_at))
    return job.step or (f"attempt {job.attempt}" if job.attempt > 1 else None)


def progress(job: Job) -> Html | None:
    """How far a job is, as a bar and in its own words."""
    far = job.progress
    if far is None:
        return None
    text = " · ".join(filter(None, (far.text, job.step)))
    if not far.total:
        return joined(f"{far.done:,g} ", text)
    meter = h("progress", value=str(far.done), max=str(far.total), aria_label="Progress")
    share = f"{100 * min(1.0, far.done / far.total):.0f} % "
    return h("span", meter, " ", share, text, class_="progress")


def _paging(seen: Seen, view: View) -> Html:
    jobs = seen.page.jobs
    is_full = len(jobs) == PAGE_JOBS
    after = jobs[-1].number if is_full else seen.page.stopped_at
    links = []
    here = f"{parts.url(view.root, 'jobs')}/"
    if seen.before is not None:
        links.append(h("a", "Newest", href=parts.jobs_url(view.root, seen.text), rel="first"))
    if after is not None and seen.query.number is None:
        query = parts.url("", q=seen.text, before=after)
        links.append(h("a", "Older", href=f"{here}{query}", rel="next", data_key="n"))
    stopped = not is_full and seen.page.stopped_at is not None
    note = (
        f"The search stopped at job {seen.page.stopped_at:,}: “Older” goes on there."
        if stopped
        else ""
    )
    return h("nav", links, h("span", note, class_="muted"), class_="paging", aria_label="More jobs")


JOBS: Final = Page(
    path="/jobs/", id="page_jobs", title=lambda _: "Jobs", look=look, show=show, query=JobsQuery
)
