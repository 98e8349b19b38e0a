"""`longshore jobs`, `job`, `cancel`, `retry` and `why`: what became of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click

from longshore.cli import completing
from longshore.cli.lookups import parse_since, worker_id, worker_names
from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.view import jsonable
from longshore.cli.view.screens import jobs_screen
from longshore.cli.view.show import View, job_view, jobs_table, print_json, print_text, why_line
from longshore.cli.view.watching import Shown, show, watch_options
from longshore.client.connection import Connection, Ref
from longshore.core.lifecycle import REACHED, TERMINAL
from longshore.errors import InvalidInput, NotFound, WrongState
from longshore.model.ids import parse_ref
from longshore.model.job import CancelVerdict, Job, JobFilter, JobPage, JobState, RetryVerdict
from longshore.run.ready import note
from longshore.wire.messages import CancelAnswer, RetryAnswer

_CANCEL_WORDS = {
    CancelVerdict.CANCELLED: "is cancelled",
    CancelVerdict.CANCELLING: "is being cancelled: its worker stops it",
    CancelVerdict.ALREADY_ENDED: "had ended already",
    CancelVerdict.NOT_FOUND: "does not exist",
}
_RETRY_WORDS = {
    RetryVerdict.RETRIED: "is ready again",
    RetryVerdict.NOT_ENDED: "has not ended: cancel it first, or wait",
    RetryVerdict.SUCCEEDED: "succeeded: submit a new one to run it again",
    RetryVerdict.UNIQUE_KEY_TAKEN: "cannot run: another job with its unique key has not ended",
    RetryVerdict.NOT_FOUND: "does not exist",
}
_Answer = CancelAnswer | RetryAnswer
_DONE = {CancelVerdict.CANCELLED, CancelVerdict.CANCELLING, RetryVerdict.RETRIED}


def _one(context: click.Context, parameter: click.Parameter, value: str) -> Ref:
    return parse_ref(value)


@click.command(
    name="jobs",
    epilog=examples(
        "longshore jobs",
        "longshore jobs --state failed --kind resize --limit 10",
        "longshore jobs --since 2h --label customer-7",
        "longshore jobs --state running --watch",
        "longshore jobs --json | jq '.[].number'",
        "longshore jobs --before 1200    (the page after job 1200)",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in REACHED]),
    metavar="STATE",
    help=f"Only jobs in this state: {', '.join(REACHED)}; repeatable.",
)
@click.option(
    "--kind", metavar="KIND", shell_complete=completing.kinds, help="Only jobs of this kind."
)
@click.option(
    "--queue", metavar="NAME", shell_complete=completing.queues, help="Only jobs of this queue."
)
@click.option("--label", "labels", multiple=True, help="Only jobs with this label; repeatable.")
@click.option(
    "--since",
    metavar="TIME",
    callback=parse_since,
    help="Only jobs submitted since then: 30m, 2h, or 2026-01-31T12:00:00Z.",
)
@click.option(
    "--worker",
    metavar="WORKER",
    shell_complete=completing.workers,
    help="Only jobs this worker has or had: its name, its id, or how that begins.",
)
@click.option("--before", type=int, metavar="NUMBER", help="Only jobs with a lower number.")
@click.option(
    "--limit",
    type=Whole(1, 1000),
    metavar="N",
    default=50,
    help="At most so many (50); up to 1000.",
)
@watch_options
@client_options
@click.pass_context
def list_jobs(context: click.Context, /, **given: Any) -> None:
    """List jobs, newest first."""

    async def look(connection: Connection) -> JobPage:
        return await connection.jobs(await _wanted(connection, given))

    show(
        context,
        given,
        Shown(
            look,
            lambda found: [jsonable.brief(job) for job in found.jobs],
            _jobs_view,
            remark=_where_it_stopped,
        ),
    )


def _jobs_view(found: JobPage) -> View:
    screen = jobs_screen(found.jobs, datetime.now(UTC))
    return View([jobs_table(found.jobs)], "no such jobs", screen=[screen])


def _where_it_stopped(found: JobPage) -> str:
    if found.stopped_at is None:
        return ""
    number = found.stopped_at
    return f"only jobs from {number} on were looked at; `--before {number}` goes on from there"


async def _wanted(connection: Connection, given: dict[str, Any]) -> JobFilter:
    worker: str | None = given["worker"]
    return JobFilter(
        states=tuple(JobState(state) for state in given["states"]),
        kind=given["kind"],
        queue=given["queue"],
        worker=None if worker is None else await worker_id(connection, worker),
        before=given["before"],
        limit=given["limit"],
        labels=given["labels"],
        since=given["since"],
    )


@click.command(
    name="job",
    epilog=examples(
        "longshore job 42",
        "longshore job 42 --watch    (until it has ended)",
        "longshore job 42 --json | jq .result",
    ),
)
@click.argument("ref", callback=_one)
@watch_options
@client_options
@click.pass_context
def show_job(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Show one job, whole.

    What it is, what became of it, who ran it, its history.

    REF is the job's number or its id.
    """

    async def look(connection: Connection) -> tuple[Job, Mapping[UUID, str]]:
        job = await connection.job(ref)
        return job, await worker_names(connection, job)

    show(
        context,
        given,
        Shown(
            look,
            lambda found: jsonable.job(*found),
            lambda found: job_view(*found),
            lambda found: found[0].state in TERMINAL,
        ),
    )


@click.command(epilog=examples("longshore why 42", "longshore why 42 --json"))
@click.argument("ref", callback=_one)
@client_options
@click.pass_context
def why(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Say in words why a job is where it is.

    REF is the job's number or its id.
    """
    answer = ask(context, given, lambda connection: connection.why(ref))
    if given["as_json"]:
        print_json(jsonable.plain(answer))
    else:
        print_text(why_line(answer))


@click.command(epilog=examples("longshore cancel 42", "longshore cancel 42 43 44 --json"))
@click.argument("refs", nargs=-1, required=True, metavar="REF…")
@client_options
@click.pass_context
def cancel(context: click.Context, /, refs: tuple[str, ...], **given: Any) -> int:
    """Cancel jobs; one that runs is stopped by its worker.

    REF is a job's number or its id.

    Exits with 3 if one does not exist, else with 2 if one had ended already or is no job's name.
    """
    return _do(context, given, refs, Connection.cancel)


@click.command(epilog=examples("longshore retry 42", "longshore retry 42 43 --json"))
@click.argument("refs", nargs=-1, required=True, metavar="REF…")
@client_options
@click.pass_context
def retry(context: click.Context, /, refs: tuple[str, ...], **given: Any) -> int:
    """Run jobs again that ended without success.

    Each goes on as the same job, in a new round. REF is a job's number or its id.

    Exits with 3 if one does not exist, else with 2 if one is not to be retried or is no job's name.
    """
    return _do(context, given, refs, Connection.retry)


def _do(
    context: click.Context,
    given: dict[str, Any],
    texts: Sequence[str],
    verb: Callable[[Connection, Sequence[Ref]], Awaitable[Sequence[_Answer]]],
) -> int:
    """Does it to every job that is named, and says which of the texts name none."""
    refs, faults = _parsed(texts)
    answers = ask(context, given, lambda connection: verb(connection, refs)) if refs else ()
    if given["as_json"]:
        malformed = [{"job": text, "id": None, "verdict": "malformed"} for text in faults]
        print_json([*map(jsonable.plain, answers), *malformed])
    else:
        for answer in answers:
            print_text(f"job {answer.job} {_in_words(answer)}")
    for fault in faults.values():
        note(f"error: {fault}")
    _raise_for(answers)
    return InvalidInput.exit_code if faults else 0


def _parsed(texts: Sequence[str]) -> tuple[list[Ref], dict[str, InvalidInput]]:
    refs: list[Ref] = []
    faults: dict[str, InvalidInput] = {}
    for text in texts:
        try:
            refs.append(parse_ref(text))
        except InvalidInput as error:
            faults[text] = error
    return refs, faults


def _in_words(answer: _Answer) -> str:
    if isinstance(answer, CancelAnswer):
        return _CANCEL_WORDS[answer.verdict]
    return _RETRY_WORDS[answer.verdict]


def _raise_for(answers: Sequence[_Answer]) -> None:
    missing = [answer for answer in answers if answer.id is None]
    undone = [answer for answer in answers if answer.verdict not in _DONE]
    if missing:
        raise NotFound(f"there is no job {_listed(missing)}; `longshore jobs` lists them")
    if undone:
        raise WrongState(f"nothing was done to job {_listed(undone)}; `longshore job` shows it")


def _listed(answers: Sequence[_Answer]) -> str:
    return ", ".join(str(answer.job) for answer in answers)
