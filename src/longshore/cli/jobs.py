"""`longshore jobs`, `job`, `cancel`, `retry` and `why`: what became of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from longshore.cli import jsonable
from longshore.cli.options import ask, client_options, examples
from longshore.cli.show import jobs_table, print_job, print_json, print_table, print_text
from longshore.client.connection import Ref
from longshore.errors import NotFound, WrongState
from longshore.model.ids import parse_ref
from longshore.model.job import CancelVerdict, JobFilter, JobState, RetryVerdict
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
_DONE = {CancelVerdict.CANCELLED, CancelVerdict.CANCELLING, RetryVerdict.RETRIED}


def _one(context: click.Context, parameter: click.Parameter, value: str) -> Ref:
    return parse_ref(value)


def _some(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Ref, ...]:
    return tuple(parse_ref(value) for value in values)


@click.command(
    name="jobs",
    epilog=examples(
        "longshore jobs",
        "longshore jobs --state failed --kind resize --limit 10",
        "longshore jobs --json | jq '.[].number'",
        "longshore jobs --before 1200    (the page after the one that ended with job 1200)",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in JobState]),
    help="Only jobs in this state; may be repeated.",
)
@click.option("--kind", metavar="KIND", help="Only jobs of this kind.")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option(
    "--worker",
    type=click.UUID,
    metavar="ID",
    help="Only jobs this worker has or had; `workers --json` tells ids.",
)
@click.option("--before", type=int, metavar="NUMBER", help="Only jobs with a lower number.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many."
)
@client_options
@click.pass_context
def list_jobs(context: click.Context, /, **given: Any) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(
        states=tuple(JobState(state) for state in given["states"]),
        kind=given["kind"],
        queue=given["queue"],
        worker=given["worker"],
        before=given["before"],
        limit=given["limit"],
    )
    found = ask(context, given, lambda connection: connection.jobs(wanted))
    if given["as_json"]:
        print_json([jsonable.brief(job) for job in found])
    else:
        print_table(jobs_table(found), "no such jobs")


@click.command(
    name="job", epilog=examples("longshore job 42", "longshore job 42 --json | jq .result")
)
@click.argument("ref", callback=_one)
@client_options
@click.pass_context
def show_job(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Show one job, whole.

    What it is, what became of it, who ran it, its history.

    REF is the job's number or its id.
    """
    found = ask(context, given, lambda connection: connection.job(ref))
    if given["as_json"]:
        print_json(jsonable.job(found))
    else:
        print_job(found)


@click.command(epilog=examples("longshore why 42", "longshore why 42 --json"))
@click.argument("ref", callback=_one)
@client_options
@click.pass_context
def why(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Say in words why a job is where it is."""
    answer = ask(context, given, lambda connection: connection.why(ref))
    if given["as_json"]:
        print_json(jsonable.plain(answer))
    else:
        print_text(f"job {answer.number} ({answer.state}): {answer.why}")


@click.command(epilog=examples("longshore cancel 42", "longshore cancel 42 43 44 --json"))
@click.argument("refs", nargs=-1, required=True, metavar="REF…", callback=_some)
@client_options
@click.pass_context
def cancel(context: click.Context, /, refs: tuple[Ref, ...], **given: Any) -> None:
    """Cancel jobs; one that runs is stopped by its worker.

    Exits with 3 if one does not exist, else with 2 if one had ended already.
    """
    _report(ask(context, given, lambda connection: connection.cancel(refs)), given)


@click.command(epilog=examples("longshore retry 42", "longshore retry 42 43 --json"))
@click.argument("refs", nargs=-1, required=True, metavar="REF…", callback=_some)
@client_options
@click.pass_context
def retry(context: click.Context, /, refs: tuple[Ref, ...], **given: Any) -> None:
    """Run jobs again that ended without success.

    Each goes on as the same job, in a new round.

    Exits with 3 if one does not exist, else with 2 if one is not to be retried.
    """
    _report(ask(context, given, lambda connection: connection.retry(refs)), given)


def _report(answers: Sequence[CancelAnswer | RetryAnswer], given: dict[str, Any]) -> None:
    if given["as_json"]:
        print_json([jsonable.plain(answer) for answer in answers])
    else:
        for answer in answers:
            print_text(f"job {answer.job} {_in_words(answer)}")
    _raise_for(answers)


def _in_words(answer: CancelAnswer | RetryAnswer) -> str:
    if isinstance(answer, CancelAnswer):
        return _CANCEL_WORDS[answer.verdict]
    return _RETRY_WORDS[answer.verdict]


def _raise_for(answers: Sequence[CancelAnswer | RetryAnswer]) -> None:
    missing = [answer for answer in answers if answer.id is None]
    undone = [answer for answer in answers if answer.verdict not in _DONE]
    if missing:
        raise NotFound(f"there is no job {_listed(missing)}; `longshore jobs` lists them")
    if undone:
        raise WrongState(f"nothing was done to job {_listed(undone)}; `longshore job` shows it")


def _listed(answers: Sequence[CancelAnswer | RetryAnswer]) -> str:
    return ", ".join(str(answer.job) for answer in answers)
