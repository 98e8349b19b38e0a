"""`longshore jobs`, `job`, `why`, `cancel` and `retry`: look at jobs, stop them, run them again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import click
from click.core import ParameterSource
from msgspec import structs

from longshore.cli import completing
from longshore.cli.commands.bulk import act_on_all, bulk_options
from longshore.cli.namesakes import of_job
from longshore.cli.options import (
    Whole,
    ask,
    client_options,
    examples,
    format_option,
    ref_argument,
    since,
)
from longshore.cli.view.lists import jobs_screen, jobs_table
from longshore.cli.view.neighbours import neighbour_lines, neighbours_json
from longshore.cli.view.show import (
    View,
    job_view,
    print_answer,
    print_json,
    print_text,
    why_line,
)
from longshore.cli.view.watching import Shown, refuse_watch, show, watch_options
from longshore.client import etcdq, jsonable
from longshore.client.callbacks import callbacks_of
from longshore.client.connection import Connection, Ref
from longshore.client.logs import Steps
from longshore.client.neighbours import Neighbours, keys_of, neighbours
from longshore.client.searching import searched, worker_id
from longshore.core.group_words import shown_state
from longshore.core.lifecycle import TERMINAL
from longshore.errors import InvalidInput, NotFound, WrongState
from longshore.model.group import Group
from longshore.model.ids import parse_ref
from longshore.model.job import CancelVerdict, Job, JobFilter, JobPage, JobState, RetryVerdict
from longshore.payload.callback_words import CallbackView
from longshore.run.ready import note
from longshore.wire.messages import CancelAnswer, RetryAnswer

_Answer = CancelAnswer | RetryAnswer
_WORDS: dict[type[_Answer], dict[Any, str]] = {
    CancelAnswer: {
        CancelVerdict.CANCELLED: "is cancelled",
        CancelVerdict.CANCELLING: "is being cancelled: its worker stops it",
        CancelVerdict.ALREADY_ENDED: "had ended already",
        CancelVerdict.NOT_FOUND: "does not exist",
    },
    RetryAnswer: {
        RetryVerdict.RETRIED: "is ready again",
        RetryVerdict.NOT_ENDED: "has not ended: cancel it first, or wait",
        RetryVerdict.SUCCEEDED: "succeeded: submit a new one to run it again",
        RetryVerdict.UNIQUE_KEY_TAKEN: "cannot run: another job with its unique key has not ended",
        RetryVerdict.IN_GROUP: "belongs to a group: use `longshore group retry GROUP --from KEY`",
        RetryVerdict.NOT_FOUND: "does not exist",
    },
}
_DONE = {CancelVerdict.CANCELLED, CancelVerdict.CANCELLING, RetryVerdict.RETRIED}


@click.command(
    name="jobs",
    epilog=examples(
        "longshore jobs",
        "longshore jobs --state failed --kind resize --limit 10",
        "longshore jobs state:failed arg.tenant:acme 'error:\"timed out\"'",
        "longshore jobs --since 2h --label customer-7",
        "longshore jobs --state running --watch",
        "longshore jobs --json | jq '.[].number'",
        "longshore jobs --group 1200 --state failed",
        "longshore jobs state:failed kind:report --all retry --plan",
        "longshore jobs --before 1200    (the page after job 1200)",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in JobState]),
    metavar="STATE",
    help=f"Only jobs in this state: {', '.join(JobState)}; repeatable.",
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
    type=since,
    help="Only jobs submitted since then: 30m, 2h, or 2026-01-31T12:00:00Z.",
)
@click.option(
    "--worker",
    metavar="WORKER",
    shell_complete=completing.workers,
    help="Only jobs this worker has or had: its name, its id, or the beginning of its id.",
)
@click.option("--group", metavar="GROUP", help="Only jobs of this group: its number, or its id.")
@click.option("--before", type=int, metavar="NUMBER", help="Only jobs with a lower number.")
@click.option(
    "--limit",
    type=Whole(1, 1000),
    metavar="N",
    default=50,
    help="The most jobs to list (50); up to 1000.",
)
@click.argument("search", nargs=-1)
@bulk_options
@watch_options
@client_options
def list_jobs(context: click.Context, /, **given: Any) -> None:
    """List jobs, newest first.

    SEARCH is terms that all must hold: kind:report queue:mail state:failed,cancelled label:nightly
    arg.tenant:acme error:timeout worker:NAME group:7 since:1h older:2h slower:30s. A value with
    spaces is in double quotes. A search looks at a bounded number of jobs, and says where it
    stopped.

    --all does something to every job that matches, on all pages: it says how many there are, asks,
    and leaves the work to dispatchers (`longshore bulk`).
    """
    if given["action"] is not None:
        _act_on_all(context, given)
        return
    _refuse_alone(context, given)

    async def look(connection: Connection) -> _Listed:
        ref = given["group"]
        group = None if ref is None else await connection.group(parse_ref(ref, "group"))
        page = await connection.jobs(await _wanted(connection, given, group))
        if group is None:
            return _Listed(page, {})
        return _Listed(page, await keys_of(connection, group.id, [job.id for job in page.jobs]))

    show(context, Shown(look, _jobs_json, _jobs_view, remark=_where_it_stopped))


def _act_on_all(context: click.Context, given: dict[str, Any]) -> None:
    refuse_watch(context)
    for name in ("before", "limit"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--all means all pages: leave out --{name}", context)

    async def wanted(connection: Connection) -> JobFilter:
        ref = given["group"]
        group = None if ref is None else await connection.group(parse_ref(ref, "group"))
        return await _wanted(connection, {**given, "limit": JobFilter().limit}, group)

    act_on_all(context, wanted, given)


def _refuse_alone(context: click.Context, given: dict[str, Any]) -> None:
    for name in ("to", "plan", "yes", "wait"):
        if given[name]:
            raise click.UsageError(f"--{name} goes with --all ACTION", context)


class _Listed(NamedTuple):
    """Some jobs, and the keys of those in the group that was asked for."""

    page: JobPage
    keys: dict[UUID, str]


def _jobs_json(found: _Listed) -> list[dict[str, Any]]:
    keys = found.keys
    return [
        {**jsonable.brief(job), **({"key": keys[job.id]} if job.id in keys else {})}
        for job in found.page.jobs
    ]


def _jobs_view(found: _Listed) -> View:
    jobs, keys = found.page.jobs, found.keys
    screen = jobs_screen(jobs, datetime.now(UTC), keys)
    return View([jobs_table(jobs, keys)], "no such jobs", screen=[screen])


def _where_it_stopped(found: _Listed) -> str:
    if found.page.stopped_at is None:
        return ""
    number = found.page.stopped_at
    return f"the search stopped at job {number}; `--before {number}` goes on from there"


async def _wanted(connection: Connection, given: dict[str, Any], group: Group | None) -> JobFilter:
    """The search, and what options say besides: an option goes before a term."""
    worker: str | None = given["worker"]
    now, limit = datetime.now(UTC), given["limit"]
    found = await searched(connection, " ".join(given["search"]), now, given["before"], limit)
    said = {
        "states": tuple(JobState(state) for state in given["states"]),
        "kind": given["kind"],
        "queue": given["queue"],
        "worker": None if worker is None else await worker_id(connection, worker),
        "labels": given["labels"],
        "since": given["since"],
        "group": None if group is None else group.id,
    }
    return structs.replace(found, **{name: value for name, value in said.items() if value})


@click.command(
    name="job",
    epilog=examples(
        "longshore job 42",
        "longshore job 42 --watch    (until it has ended)",
        "longshore job 42 --json | jq .result",
        "longshore job 42 --format etcdq | jq .States",
    ),
)
@ref_argument
@format_option("Show a container as that system's document, in JSON.")
@watch_options
@client_options
def show_job(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Show one job: its arguments, outcome and history.

    REF is the job's number or its id. Of a job of a group it also shows what it depends on and what
    depends on it.
    """
    if given["format"] is not None:
        refuse_watch(context)
        print_json(ask(context, lambda connection: _document(connection, ref)))
        return

    steps = Steps(ref)

    async def look(connection: Connection) -> _Looked:
        job = await of_job(connection, ref, connection.job(ref))
        await steps.look(connection, job)
        names = await _worker_names(connection, job)
        if job.group is None:
            how = job.id, job.round, job.options.watchers
            calls = await callbacks_of(connection, *how, ended=job.state in TERMINAL)
            return _Looked(job, names, callbacks=tuple(calls))
        group, key = await connection.group(job.group), (await connection.why(job.id)).key
        others = await neighbours(connection, group.id, job.id)
        return _Looked(job, names, key, f"{group.number} ({group.name}), as '{key}'", others)

    show(
        context,
        Shown(
            look,
            lambda found: {
                **jsonable.job(found.job, found.names, found.key),
                **neighbours_json(found.neighbours),
                "callbacks": jsonable.plain(found.callbacks),
                "steps": [
                    {"at": jsonable.plain(line.at), "text": line.text} for line in steps.last
                ],
            },
            lambda found: job_view(
                found.job,
                found.names,
                found.group,
                neighbour_lines(found.neighbours),
                found.callbacks,
                tuple(steps.last),
            ),
            lambda found: shown_state(found.job) in TERMINAL,
        ),
    )


async def _document(connection: Connection, ref: Ref) -> dict[str, Any]:
    return await etcdq.shown_job(connection, await connection.job(ref))


class _Looked(NamedTuple):
    """A job, the names of the workers that had it, its key in its group, the group, who is near."""

    job: Job
    names: Mapping[UUID, str]
    key: str | None = None
    group: str = ""
    neighbours: Neighbours | None = None
    callbacks: tuple[CallbackView, ...] = ()


async def _worker_names(connection: Connection, job: Job) -> Mapping[UUID, str]:
    """The names of the workers that had a job, as far as they are known."""
    if job.worker is None and not any(entry.state is JobState.RUNNING for entry in job.history):
        return {}
    had = {str(job.worker), *(entry.by for entry in job.history)}
    infos = [view.info for view in await connection.workers()]
    return {info.id: info.name for info in infos if info.name and str(info.id) in had}


@click.command(epilog=examples("longshore why 42", "longshore why 42 --json"))
@ref_argument
@client_options
def why(context: click.Context, /, ref: Ref, **given: Any) -> None:
    """Say in words why a job is where it is.

    REF is the job's number or its id.
    """
    answer = ask(context, lambda connection: of_job(connection, ref, connection.why(ref)))
    print_answer(given["as_json"], jsonable.plain(answer), why_line(answer))


@click.command(epilog=examples("longshore cancel 42", "longshore cancel 42 43 44 --json"))
@click.argument("refs", nargs=-1, required=True, metavar="REF…")
@client_options
def cancel(context: click.Context, /, refs: tuple[str, ...], **given: Any) -> int:
    """Cancel jobs; a worker stops one that runs.

    REF is a job's number or its id.

    Exits with 3 if a job does not exist, or else 2 if one had ended already or a REF is malformed.
    """
    return _do(context, refs, Connection.cancel)


@click.command(epilog=examples("longshore retry 42", "longshore retry 42 43 --json"))
@click.argument("refs", nargs=-1, required=True, metavar="REF…")
@client_options
def retry(context: click.Context, /, refs: tuple[str, ...], **given: Any) -> int:
    """Run jobs again that ended without success.

    Each stays the same job, in a new round. REF is a job's number or its id.

    Exits with 3 if a job does not exist, or else 2 if one cannot be retried or a REF is malformed.
    """
    return _do(context, refs, Connection.retry)


def _do(
    context: click.Context,
    texts: Sequence[str],
    verb: Callable[[Connection, Sequence[Ref]], Awaitable[Sequence[_Answer]]],
) -> int:
    """Does it to every job that is named, and reports the texts that name none."""
    refs, faults = _parsed(texts)
    answers = ask(context, lambda connection: verb(connection, refs)) if refs else ()
    if context.params["as_json"]:
        malformed = [{"job": text, "id": None, "verdict": "malformed"} for text in faults]
        print_json([*map(jsonable.plain, answers), *malformed])
    else:
        for answer in answers:
            print_text(f"job {answer.job} {_WORDS[type(answer)][answer.verdict]}")
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


def _raise_for(answers: Sequence[_Answer]) -> None:
    missing = [answer for answer in answers if answer.id is None]
    undone = [answer for answer in answers if answer.verdict not in _DONE]
    if missing:
        raise NotFound(f"there is no job {_listed(missing)}; `longshore jobs` lists them")
    if undone:
        raise WrongState(f"nothing was done to job {_listed(undone)}; `longshore job` shows it")


def _listed(answers: Sequence[_Answer]) -> str:
    return ", ".join(str(answer.job) for answer in answers)
