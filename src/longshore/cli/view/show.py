"""How answers are printed: tables in colour on a terminal, plain and stable columns in a pipe.

A job chooses its own texts. Control characters in them are made visible, so that they cannot steer
the terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import isfinite, nan
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct, structs
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from longshore.cli.view.usage import usage_words
from longshore.client import jsonable
from longshore.core.group_words import shown_state
from longshore.core.outcomes import OF_PROGRAMS
from longshore.core.resources import in_words, split
from longshore.core.text import visible, visible_json
from longshore.core.usage import used_by
from longshore.core.waits import waited_words
from longshore.model.job import Ended, Job, JobError, JobState, Progress, Reason
from longshore.model.log import LOGGED, LogLine
from longshore.payload import callback_words
from longshore.payload.callback_words import CallbackView
from longshore.run.ready import note
from longshore.wire.messages import WhyAnswer

_STYLES = {
    JobState.READY: "cyan",
    JobState.RUNNING: "blue",
    JobState.CANCELLING: "yellow",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.DEPENDENCY_FAILED: "red",
    JobState.CANCELLED: "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "alive": "green",
    "silent": "red",
}
_LONG = {
    "kind": 14,
    "kinds": 12,
    "queues": 12,
    "running": 12,
    "error": 20,
    "by": 12,
    "info": 24,
    "ended": 24,
    "progress": 16,
    "progress / error": 16,
}
_BAR_CELLS = 10
_PERCENT = re.compile(r"(\d+)%")
_LEAST = 12


class Table(Struct, frozen=True):
    """Rows of text under headings. Columns named in `right` hold numbers.

    On a terminal too narrow for all columns, those in `optional` go, the first named first. Texts
    in `wrapped` columns continue in the next line; other long texts are cut.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()
    optional: tuple[str, ...] = ()
    wrapped: frozenset[str] = frozenset()


class View(Struct, frozen=True):
    """An answer as a person sees it: lines and tables, or words if there is nothing to show.

    A terminal shows `screen` instead of `parts`, if there is one.
    """

    parts: Sequence[Text | Table]
    empty: str = ""
    screen: Sequence[Text | Table] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not any(part.rows if isinstance(part, Table) else part for part in self.parts)


class OutputClosed(Exception):
    """Nothing reads our output any more."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raises instead of ending the process here."""
        raise OutputClosed


def console(*, stderr: bool = False) -> Console:
    """A console without markup, coloured only on a terminal."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def print_json(value: Any) -> None:
    """Prints one JSON document."""
    _write(json_document(value) + "\n")


def print_json_line(value: Any) -> None:
    """Prints one JSON document on one line."""
    _write(json_line(value) + "\n")


def print_text(text: str) -> None:
    """Prints lines of text, control characters made visible."""
    _write(visible(text) + "\n")


def print_answer(as_json: bool, document: Any, words: str) -> None:
    """Prints an answer as one JSON document, or in words."""
    if as_json:
        print_json(document)
    else:
        print_text(words)


def print_view(view: View) -> None:
    """Prints lines and tables; if there is nothing to show, says so on standard error."""
    if view.is_empty:
        note(view.empty)
    elif sys.stdout.isatty():
        out = console()
        for part in rich_parts(view, out.width):
            out.print(part)
    else:
        _write(as_text(view))


def as_text(view: View) -> str:
    """The parts of an answer as lines of plain text."""
    parts = (aligned(one) if isinstance(one, Table) else f"{one.plain}\n" for one in view.parts)
    return "".join(parts)


def rich_parts(view: View, width: int) -> list[RenderableType]:
    """The parts of an answer, as a terminal of this width draws them."""
    if view.is_empty:
        return [Text(view.empty)]
    return [
        as_rich(fitted(on_one_line(with_bars(one)), width)) if isinstance(one, Table) else one
        for one in view.screen or view.parts
    ]


def aligned(table: Table) -> str:
    """A table as lines of plain text, as wide as it must be."""
    rows = [tuple(visible(cell).replace("\n", " ") for cell in row) for row in table.rows]
    heading = tuple(column.upper() for column in table.columns)
    widths = [max(map(cell_len, column)) for column in zip(heading, *rows, strict=True)]
    return "".join(_line(row, widths, table) for row in [heading, *rows])


def _line(row: Sequence[str], widths: Sequence[int], table: Table) -> str:
    cells = []
    for cell, width, column in zip(row, widths, table.columns, strict=True):
        pad = " " * (width - cell_len(cell))
        cells.append(pad + cell if column in table.right else cell + pad)
    return "  ".join(cells).rstrip() + "\n"


def fitted(table: Table, width: int) -> Table:
    """The table, fitted to the width of a terminal.

    Empty columns go first, then optional ones that have no room, then long texts are cut.
    """
    for column in [one for one in table.columns if not _has_text(table, one)]:
        table = _without(table, column)
    for column in table.optional:
        if _width(table) <= width:
            break
        if column in table.columns:
            table = _without(table, column)
    for column, most in _long_columns(table, width - _width(table)).items():
        if column not in table.wrapped:
            table = _changed(table, column, partial(_shortened, width=most))
    return table


def _long_columns(table: Table, spare: int) -> dict[str, int]:
    """How wide each column of long texts may be; the room that one leaves goes to the others."""
    long = [column for column in table.columns if column in _LONG]
    more = {column: max(0, _longest(table, column) - _LONG[column]) for column in long}
    widths = {}
    for index, column in enumerate(sorted(long, key=more.__getitem__)):
        given = min(more[column], spare // (len(long) - index))
        widths[column] = max(_LEAST, _LONG[column] + given)
        spare -= given
    return widths


def with_bars(table: Table) -> Table:
    """The table with a bar before each percentage in its column of progress, if it has one."""
    if "progress" not in table.columns:
        return table
    return _changed(table, "progress", _barred)


def _barred(cell: str) -> str:
    found = _PERCENT.match(cell)
    if found is None:
        return cell
    full = min(int(found[1]), 100) * _BAR_CELLS // 100
    return f"{'━' * full}{'╌' * (_BAR_CELLS - full)} {cell}"


def on_one_line(table: Table) -> Table:
    """The table with one column for progress and error: no job of a list needs both."""
    names = ("progress", "error")
    if not all(name in table.columns and _has_text(table, name) for name in names):
        return table
    progress, error = map(table.columns.index, names)
    rows = [(*row, row[progress] or row[error]) for row in table.rows]
    both = structs.replace(table, columns=(*table.columns, "progress / error"), rows=rows)
    return _without(_without(both, "progress"), "error")


def _has_text(table: Table, column: str) -> bool:
    index = table.columns.index(column)
    return any(row[index] for row in table.rows)


def _changed(table: Table, column: str, change: Callable[[str], str]) -> Table:
    index = table.columns.index(column)
    rows = [(*row[:index], change(row[index]), *row[index + 1 :]) for row in table.rows]
    return structs.replace(table, rows=rows)


def _shortened(cell: str, width: int) -> str:
    text = cell.replace("\n", " ")
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _width(table: Table) -> int:
    # A long text needs no more room than the part of it that is always shown.
    widths = [min(_longest(table, one), _LONG.get(one, sys.maxsize)) for one in table.columns]
    return sum(widths) + 2 * (len(widths) - 1)


def _without(table: Table, column: str) -> Table:
    index = table.columns.index(column)
    cut = [(*row[:index], *row[index + 1 :]) for row in [table.columns, *table.rows]]
    return structs.replace(table, columns=cut[0], rows=cut[1:])


def as_rich(table: Table) -> RichTable:
    """A table for the terminal, each cell taken as it is."""
    rich = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        justify: JustifyMethod = "right" if column in table.right else "left"
        rich.add_column(column, justify=justify, no_wrap=column not in table.wrapped)
    for row in table.rows:
        rich.add_row(
            *(Text(visible(cell).replace("\n", " "), _STYLES.get(cell, "")) for cell in row)
        )
    return rich


def _longest(table: Table, column: str) -> int:
    index = table.columns.index(column)
    return max(cell_len(row[index]) for row in [table.columns, *table.rows])


# values in words


def time(at: datetime | None, to: str = "seconds") -> str:
    """A time in UTC, to the second unless told."""
    if at is None:
        return ""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return f"{aware.astimezone(UTC).replace(tzinfo=None).isoformat(' ', to)}Z"


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def state_words(job: Job) -> str:
    """A job's state in a word or two: what a worker holds ahead does not run yet."""
    return shown_state(job).value if job.held_behind is None else "held ahead"


def took(job: Job) -> str:
    """How long the last attempt of an ended job ran."""
    if job.started_at is None or job.ended_at is None:
        return ""
    return duration(max(0.0, (job.ended_at - job.started_at).total_seconds()))


def progress(said: Progress | None) -> str:
    """A job's progress in one line."""
    if said is None:
        return ""
    of = f"/{_amount(said.total)} ({said.done / said.total:.0%})" if said.total else ""
    return f"{_amount(said.done)}{of} {said.text}".rstrip()


def _amount(number: float) -> str:
    """A number as people write it, never 2e+07."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:g}"


def how_far(job: Job) -> str:
    """The progress and step of a job that runs, for a cell of a table: percent, then words."""
    said = job.progress
    words = [job.step or "", said.text if said else ""]
    if said is not None:
        part = said.done / said.total if said.total else nan
        percent = f"{min(max(int(part * 100), 0), 100)}%" if isfinite(part) else ""
        words.insert(0, percent or _amount(said.done))
    return " ".join(" ".join(filter(None, words)).split())


def percent(value: float | None) -> str:
    """A percentage, if it is known."""
    return "" if value is None else f"{value:.0f} %"


def error_line(error: JobError) -> str:
    """What went wrong, in one line."""
    kind = f"{error.type}: " if error.type else ""
    # Of a program that exited, the message says it all: "exited with code 3".
    reason = "" if error.reason is Reason.EXITED else f"{error.reason.value}: "
    return f"{reason}{kind}{error.message}".split("\n", 1)[0]


def unsuccessful(number: int, ended: Ended) -> str:
    """How a job ended that did not succeed, in one line."""
    if ended.error is None:
        return f"job {number} was {ended.state}"
    return f"job {number} failed, {error_line(ended.error)}"


def why_line(answer: WhyAnswer) -> str:
    """Why a job is where it is, in one line."""
    return f"job {answer.number} ({answer.state}): {answer.why}"


def json_document(value: Any) -> str:
    """A value as JSON on several lines."""
    return visible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def json_line(value: Any) -> str:
    """A value as JSON on one line."""
    return visible_json(msgspec.json.encode(value).decode())


class Telling:
    """A job's log as a person reads it, with a heading where the next attempt begins."""

    def __init__(self) -> None:
        self._token: int | None = None

    def in_words(self, line: LogLine) -> str:
        """The next line of the log, under a heading if it needs one."""
        is_new = line.token != self._token
        heading = is_new and (self._token is not None or (line.attempt or 1) > 1)
        self._token = line.token
        words = _log_line(line)
        return f"--- attempt {line.attempt or 'unknown'}\n{words}" if heading else words


def _log_line(line: LogLine) -> str:
    """A line of the log as a person reads it; further lines of its text are indented."""
    label = line.level.lower() if line.stream == LOGGED else line.stream
    head = f"{time(line.at, 'milliseconds')} {label:<8} "
    logger = f"{line.logger}: " if line.logger else ""
    return (head + logger + line.text.replace("\n", "\n" + " " * len(head))).rstrip(" ")


# jobs


def state_style(state: str) -> str:
    """The colour of a state of jobs or groups."""
    return _STYLES.get(state, "")


def job_view(
    job: Job,
    names: Mapping[UUID, str],
    group: str = "",
    near: Sequence[tuple[str, str]] = (),
    callbacks: Sequence[CallbackView] = (),
    steps: Sequence[LogLine] = (),
) -> View:
    """Everything about a job; `names` are those of the workers that had it.

    `near` has lines about the jobs around it in its group, `steps` the steps of its last attempt.
    """
    worker = names.get(job.worker, str(job.worker)) if job.worker else ""
    title = Text(f"job {job.number} ").append(
        state_words(job), style=_STYLES.get(shown_state(job), "")
    )
    all_lines = [*_job_lines(job, worker, group, near), *callback_lines(callbacks)]
    lines = [(name, text) for name, text in all_lines if text]
    width = max(len(name) for name, _ in lines)
    parts: list[Text | Table] = [title]
    for name, text in lines:
        parts.append(Text(f"  {name:<{width}}  ", "dim").append(visible(text), style="not dim"))
    if job.error is not None and job.error.traceback:
        is_output = job.error.reason in OF_PROGRAMS
        heading = "what it printed last" if is_output else "traceback"
        parts += [Text(f"\n{heading}"), Text(visible(job.error.traceback.rstrip()))]
    if steps:
        parts += [Text("\nsteps"), steps_table(steps)]
    if job.history:
        parts += [Text("\nhistory"), history_table(job, names)]
    return View(parts)


def steps_table(steps: Sequence[LogLine]) -> Table:
    """What an attempt did, and for how long before it went on to the next."""
    ends = [*(step.at for step in steps[1:]), None]
    rows = [
        (
            time(step.at, "milliseconds"),
            duration((end - step.at).total_seconds()) if end is not None else "",
            step.text,
        )
        for step, end in zip(steps, ends, strict=True)
    ]
    return Table(("at", "took", "step"), rows)


def callback_lines(callbacks: Sequence[CallbackView]) -> list[tuple[str, str]]:
    """What became of the callbacks of a job or a group, a line for each."""
    return [("callback", callback_words.words(one)) for one in callbacks]


def _job_lines(
    job: Job, worker: str, group: str, near: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    raw = job.options.raw
    result = jsonable.payload(job.result, raw=raw)
    ran_for = f" (took {took(job)})" if took(job) else ""
    return [
        ("id", str(job.id)),
        ("kind", job.kind),
        ("group", group),
        *near,
        ("queue", job.queue),
        ("target", split(job.target)[0]),
        ("resources", in_words(job.options.resources)),
        ("used", usage_words(used_by(job))),
        ("priority", str(job.priority)),
        ("labels", ", ".join(job.options.labels)),
        ("unique key", job.unique_key or ""),
        ("args", json_line(jsonable.arguments(job))),
        ("result", json_line(result) if job.state is JobState.SUCCEEDED else ""),
        ("error", error_line(job.error) if job.error else ""),
        ("attempts", _attempts(job)),
        ("timeout", f"{job.options.timeout_s:g} s" if job.options.timeout_s else ""),
        ("expires", f"{time(job.deadline_at)}, unless it begins before" if job.deadline_at else ""),
        ("worker", worker),
        ("progress", progress(job.progress)),
        ("step", job.step or ""),
        ("checkpoint", _checkpoint(job)),
        ("created", time(job.created_at)),
        ("run at", time(job.run_at)),
        ("started", time(job.started_at)),
        ("ended", f"{time(job.ended_at)}{ran_for}"),
        ("waited", waited_words(job.waited).removeprefix("waited ")),
    ]


def _checkpoint(job: Job) -> str:
    saved = job.checkpoint
    if saved is None:
        return ""
    files = "1 file" if saved.files == 1 else f"{saved.files:,} files"
    return f"{files}, {saved.total_bytes:,} bytes, saved {time(saved.saved_at)}"


def _attempts(job: Job) -> str:
    parts = [str(job.attempt)]
    if job.failures:
        parts.append(f"{job.failures} of at most {job.options.retry.attempts} failed")
    if job.crashes:
        parts.append(f"{job.crashes} crashed")
    if job.round > 1:
        parts.append(f"round {job.round}")
    return ", ".join(parts)


def history_table(job: Job, names: Mapping[UUID, str]) -> Table:
    """A job's changes of state, oldest first."""
    called = {str(id): name for id, name in names.items()}
    rows = [
        (
            time(entry.at, "milliseconds"),
            entry.state.value,
            called.get(entry.by, entry.by),
            entry.info,
        )
        for entry in job.history
    ]
    return Table(("at", "state", "by", "info"), rows)
