"""The page of one job: why it is where it is, its life, what it got and gave, what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from longshore.client import jsonable
from longshore.client.callbacks import callbacks_of
from longshore.client.neighbours import Neighbours, neighbours
from longshore.core.access import Right
from longshore.core.group_words import shown_state
from longshore.core.job_query import term
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.timing import span
from longshore.core.usage import used_by
from longshore.core.waits import waited_words
from longshore.errors import NotAllowed
from longshore.gateway.job_streams import place_in_log
from longshore.gateway.log_archiving import read_log
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.forms import Dialog, Field, button
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.jobs import progress
from longshore.gateway.pages.page import Page, Regions, View
from longshore.gateway.pages.timeline import timeline
from longshore.gateway.pages.tree import tree
from longshore.model.group import Group, NodeView
from longshore.model.job import HistoryEntry, Job, JobState, Options
from longshore.model.log import LogLine, LogPage
from longshore.model.program import FREE_KINDS
from longshore.payload.callback_words import CallbackView

_MOST_NEIGHBOURS: Final = 50
_MARKS: Final = ("STEP", "ENGINE")


class JobPageQuery(Struct, frozen=True):
    """From where on the log is shown."""

    log_after: str = ""
    """The place behind which the page before this one stopped."""


class Seen(Struct, frozen=True):
    """What the page shows."""

    job: Job
    why: str
    key: str
    group: Group | None
    around: Neighbours | None
    callbacks: Sequence[CallbackView]
    names: dict[str, str]
    """The names of the workers that had it, by their ids."""


async def look(call: Call) -> Seen:
    """Asks for a job and what is around it."""
    connection = call.connection
    job = await connection.job(call.ref("job"))
    told = await connection.why(job.id)
    group = None if job.group is None else await connection.group(job.group)
    around = None if group is None else await neighbours(connection, group.id, job.id)
    ended = job.state in TERMINAL
    calls = await callbacks_of(connection, job.id, job.round, job.options.watchers, ended=ended)
    return Seen(job, told.why, told.key, group, around, calls, await _names(call, job))


async def _names(call: Call, job: Job) -> dict[str, str]:
    """The names of the workers that had a job, of those that are known."""
    had = {entry.by for entry in job.history} | {str(job.worker)}
    found = {str(one.info.id): one.info.name for one in await call.connection.workers()}
    return {id: name for id, name in found.items() if id in had and name}


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page."""
    job = seen.job
    return {
        "head": _head(seen, view),
        "life": timeline(job),
        "error": _error(job),
        "facts": _facts(seen, view),
        "values": _values(job, view),
        "around": _around(seen, view),
        "history": _history(job.history, seen.names),
    }


# the head


def _head(seen: Seen, view: View) -> Html:
    job = seen.job
    state = shown_state(job)
    title = joined(f"Job {job.number} ", h("span", job.kind, class_="kind"))
    why = h("p", h("strong", "Why: "), seen.why, class_="why")
    far = h("p", progress(job), class_="far") if job.progress and state in OWNED else None
    step = h("p", "Step: ", job.step) if job.step and state in OWNED else None
    return joined(parts.heading(title, parts.state(state), _actions(seen, view)), why, far, step)


def _actions(seen: Seen, view: View) -> list[Html]:
    job = seen.job
    if not view.may(Right.SUBMIT):
        return []
    path, buttons = f"dispatcher/jobs/{job.id}", []
    if job.state not in TERMINAL:
        words = f"Cancel job {job.number} ({job.kind})?"
        buttons.append(parts.action("Cancel", "DELETE", path, confirm=words, danger=True))
    elif job.state is not JobState.SUCCEEDED and job.group is None:
        buttons.append(parts.action("Retry", "POST", f"{path}/retry", done="It is ready again."))
    elif job.state is not JobState.SUCCEEDED and seen.group is not None and seen.key:
        body = msgspec.json.encode({"keys": [seen.key]}).decode()
        where = f"dispatcher/groups/{job.group}/retry"
        buttons.append(parts.action("Retry in its group", "POST", where, body=body, plan=True))
        if view.sees_payloads and not job.options.raw:
            buttons.append(_with_other_arguments(job, where, body))
    if view.sees_payloads and not job.options.raw and job.kind not in FREE_KINDS:
        buttons.append(_another(job))
    return buttons


def _with_other_arguments(job: Job, path: str, body: str) -> Html:
    """A button that asks for other arguments of a job of a group, and shows what runs again."""
    text = msgspec.json.format(msgspec.json.encode(jsonable.arguments(job)), indent=2).decode()
    args = Field(name="args", label="arguments", kind="json", value=text, required=True)
    words = "It runs again with these arguments, and all that depends on it."
    dialog = Dialog(
        title="Retry with other arguments", fields=[args], words=words, body=body, plan="body"
    )
    return button("Retry with other arguments", "POST", path, dialog)


def _another(job: Job) -> Html:
    """A button that opens a form with this job's terms."""
    like = {"kind": job.kind, "args": jsonable.arguments(job), "queue": job.queue}
    like |= {"target": job.target} if job.target else {}
    like |= {"priority": job.priority} if job.priority else {}
    like |= {"labels": list(job.options.labels)} if job.options.labels else {}
    text = msgspec.json.format(msgspec.json.encode(like), indent=2).decode()
    return h(
        "button",
        "Submit one like this",
        type="button",
        class_="action",
        data_form=text,
        data_method="POST",
        data_path="dispatcher/jobs/",
        data_goto="jobs",
        data_done="Submitted.",
    )


# its life


def _history(history: Sequence[HistoryEntry], names: Mapping[str, str]) -> Html:
    ends: list[datetime | None] = [entry.at for entry in history[1:]]
    ends.append(None)
    rows = [
        [
            parts.clock(entry.at),
            parts.state(entry.state),
            None if end is None else span(max(0.0, (end - entry.at).total_seconds())),
            entry.info,
            names.get(entry.by, entry.by),
        ]
        for entry, end in zip(history, ends, strict=True)
    ]
    heads = ("at", "state", "for#", "why", "by")
    return parts.section("History", parts.table(heads, rows, "Changes of its state"))


# facts


def _facts(seen: Seen, view: View) -> Html:
    job, options = seen.job, seen.job.options
    used = used_by(job)
    tries = f"{job.attempt} (at most {options.retry.attempts} that fail)"
    queue = h("a", job.queue, href=parts.jobs_url(view.root, term("queue", job.queue)))
    return parts.section(
        "Facts",
        parts.facts(
            [
                ("queue", queue),
                ("group", _group(seen, view)),
                ("worker", _worker_link(seen, view)),
                ("attempt", tries if job.attempt else None),
                ("submitted", parts.when(job.created_at)),
                ("by", options.by),
                ("runs at", parts.when(job.run_at) if job.state is JobState.DELAYED else None),
                ("began", parts.when(job.started_at)),
                ("waited", waited_words(job.waited).removeprefix("waited ")),
                ("took", parts.took(job.started_at, job.ended_at) if job.started_at else None),
                ("ended", parts.when(job.ended_at)),
                ("priority", str(job.priority) if job.priority else None),
                ("target", job.target),
                ("timeout", span(options.timeout_s) if options.timeout_s else None),
                ("labels", ", ".join(options.labels)),
                ("unique key", job.unique_key),
                ("limits", ", ".join(one.key for one in options.limits)),
                ("schedule", _schedule(options, view)),
                (
                    "used",
                    f"{used.memory_bytes // 2**20:,} MiB, {used.cpu_s:g} s CPU" if used else None,
                ),
                ("id", h("code", str(job.id))),
            ]
        ),
    )


def _group(seen: Seen, view: View) -> Html | None:
    if seen.group is None:
        return None
    link = parts.group_link(view.root, seen.group.number, seen.group.name)
    return joined(link, " as ", h("code", seen.key)) if seen.key else link


def _schedule(options: Options, view: View) -> Html | None:
    if options.scheduled is None:
        return None
    name = options.scheduled.schedule
    return h("a", name, href=parts.url(view.root, "schedules", name))


def _worker_link(seen: Seen, view: View) -> Html | None:
    if seen.job.worker is None:
        return None
    id = str(seen.job.worker)
    return h("a", seen.names.get(id, id), href=parts.url(view.root, "workers", id))


# what it got, gave and raised


def _values(job: Job, view: View) -> Html:
    if not view.sees_payloads:
        hidden = h("p", "Arguments and results are hidden from you.", class_="muted")
        return parts.section("Arguments and result", hidden)
    args = parts.section("Arguments", tree(jsonable.arguments(job)))
    if job.state is not JobState.SUCCEEDED:
        return args
    result = parts.section("Result", tree(jsonable.payload(job.result, raw=job.options.raw)))
    return joined(args, result)


def _error(job: Job) -> Html:
    error = job.error
    if error is None:
        return NOTHING
    title = "Error" if job.state in TERMINAL else "Error of the last attempt"
    code = f" (exit code {error.exit_code})" if error.exit_code is not None else ""
    message = h("p", h("code", error.type) if error.type else None, " ", error.message, code)
    kind = h("p", error.reason.value.replace("_", " "), class_="muted")
    trace = (
        h("details", h("summary", "Traceback"), h("pre", error.traceback), open=True)
        if error.traceback
        else None
    )
    return h("section", h("h2", title), message, kind, trace, class_="card bad")


# around


def _around(seen: Seen, view: View) -> Html:
    shown = []
    if seen.around is not None:
        for title, nodes in (
            ("Depends on", seen.around.after),
            ("Dependents", seen.around.dependents),
        ):
            if nodes:
                shown.append(parts.section(title, _nodes(nodes, view)))
    if seen.callbacks:
        rows = [
            [
                f"{one.method} {one.url}",
                parts.state(one.state) if one.state else "not yet",
                parts.job_link(view.root, one.number) if one.number else None,
                one.error,
            ]
            for one in seen.callbacks
        ]
        shown.append(
            parts.section(
                "Callbacks", parts.table(("calls", "state", "job#", "error"), rows, "Callbacks")
            )
        )
    return joined(shown)


def _nodes(nodes: Sequence[NodeView], view: View) -> Html:
    rows = [
        [parts.job_link(view.root, one.number), parts.state(shown_state(one)), one.key, one.kind]
        for one in nodes[:_MOST_NEIGHBOURS]
    ]
    more = len(nodes) - _MOST_NEIGHBOURS
    note = h("p", f"and {more:,} more", class_="muted") if more > 0 else None
    return joined(parts.table(("job#", "state", "key", "kind"), rows, "Jobs"), note)


# its log


async def log(call: Call, seen: Seen, view: View) -> Html:
    """The log as it is now. While the job lives, the browser follows it over the API."""
    job, after = seen.job, call.query(JobPageQuery).log_after
    try:
        begin = place_in_log(after or "0-0")
        page = await read_log(call.connection, call.gateway.files, job.id, None, begin)
    except NotAllowed:
        return NOTHING
    return parts.section("Log", _log(page, job, view, is_first=not after), id="log")


def _log(page: LogPage, job: Job, view: View, *, is_first: bool) -> Html:
    lines = [log_line(line) for line in page.lines]
    note = "" if lines else "It has said nothing." if is_first else "It has said nothing more."
    follows = page.more or job.state not in TERMINAL
    place = f"{page.after[0]}-{page.after[1]}"
    here = parts.url(view.root, "jobs", job.number)
    rest = parts.url(view.root, "jobs", job.number, log_after=place)
    begin = None if is_first else h("p", h("a", "the log from its begin", href=f"{here}#log"))
    more = h("noscript", h("p", h("a", "the rest of the log", href=f"{rest}#log")))
    return joined(
        begin,
        h("p", note, class_="muted", id="log-note"),
        h(
            "ol",
            lines,
            class_="log",
            tabindex=0,
            aria_label="Log",
            data_follow=f"dispatcher/jobs/{job.id}/logs?follow=true&after={place}"
            if follows
            else None,
        ),
        more if page.more else None,
    )


def log_line(line: LogLine) -> Html:
    """One line of a log, as the script makes it, too."""
    kind = "step" if line.stream.upper() in _MARKS else line.stream
    level = f" l-{line.level.lower()}" if line.level.isalpha() else ""
    name = f"o-{kind}{level}" if kind.isalpha() else "o-other"
    return h("li", parts.clock(line.at), h("span", line.text), class_=name)


JOB: Final = Page(
    path="/jobs/{id}",
    id="page_job",
    title=lambda seen: f"Job {seen.job.number} {seen.job.kind}",
    look=look,
    show=show,
    once=log,
    query=JobPageQuery,
)
