"""`longshore submit`: submits one job, and waits for its outcome if asked to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from longshore.cli import completing
from longshore.cli.options import (
    Whole,
    ask,
    client_options,
    duration,
    examples,
    format_option,
    moment,
)
from longshore.cli.view.show import print_answer, print_json, unsuccessful
from longshore.cli.view.waiting import wait_for
from longshore.client import jsonable, pairs
from longshore.client.connection import Connection
from longshore.client.described import options_in_texts
from longshore.client.ids import fresh_id
from longshore.client.kind import SubmitOptions, Terms
from longshore.core.limits import MAX_ATTEMPTS
from longshore.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    LongshoreError,
    NotFinished,
    from_code,
)
from longshore.model.job import Ended, JobState, Submission
from longshore.model.program import CONTAINER_KIND
from longshore.payload import etcdq
from longshore.payload.schemas import nearest
from longshore.payload.values import pack
from longshore.run.ready import note
from longshore.wire.messages import SubmitAnswer


@click.command(
    epilog=examples(
        "longshore submit add a=1 b=2",
        "longshore submit add a=1 b=2 --wait > result.json",
        'longshore submit resize --args \'{"file": "a.png", "size": 300}\' --retries 3',
        "longshore submit report --args @report.json --queue nightly --delay 2h",
        "longshore submit raw --data hello --wait",
        "longshore submit --format etcdq job.json",
    )
)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE…]")
@click.option("--args", metavar="JSON", help="Arguments as a JSON object, @FILE, or - .")
@format_option("KIND is a file with a job of that system, or - .")
@click.option("--data", metavar="TEXT", help="The bytes of a raw job: text, @FILE, or - .")
@click.option("--queue", metavar="NAME", shell_complete=completing.queues, help="The job's queue.")
@click.option("--target", metavar="NAME", help="The machine it needs, like linux-x86_64.")
@click.option(
    "--resources", metavar="AMOUNTS", help="What it takes of it, like cpu=2,memory=4g,gpu=1."
)
@click.option(
    "--priority",
    type=Whole(-32768, 32767),
    metavar="N",
    help="Higher goes first; -32768 to 32767.",
)
@click.option(
    "--delay", "delay_s", metavar="SECONDS", type=duration, help="Start it this much later."
)
@click.option(
    "--run-at",
    metavar="TIME",
    type=moment,
    help="Start it not before this time, like 2026-01-31T12:00:00Z.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=duration,
    help="Stop an attempt that takes longer.",
)
@click.option(
    "--expires",
    "expires_s",
    metavar="SECONDS",
    type=duration,
    help="Fail it if no worker begins it within this time of its submit, or of when it is due.",
)
@click.option(
    "--retries",
    type=Whole(0, MAX_ATTEMPTS - 1),
    metavar="N",
    help="How often to try again if it fails.",
)
@click.option(
    "--backoff",
    "backoff_s",
    metavar="SECONDS",
    type=duration,
    help="How long before the first retry; it doubles each time.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="At most so many at once: 3, or key=tenant,concurrency=3,rate=100/min; repeatable.",
)
@click.option("--fair-by", metavar="KEY", help="Share the workers by this argument, or NAME=VALUE.")
@click.option(
    "--debounce",
    metavar="SECONDS",
    help="Only the last runs: 5, or wait_s=5,max_wait_s=60,key=doc.",
)
@click.option("--unique-key", help="At most one unended job of this kind has this key.")
@click.option("--label", "labels", multiple=True, help="A tag; repeatable.")
@click.option("--callback", metavar="URL", help="Call this URL when it has ended.")
@click.option("--id", type=click.UUID, help="The job's id; submitted again, it is the same job.")
@click.option("--strict", is_flag=True, help="Refuse a kind that no live worker serves.")
@click.option(
    "--wait", is_flag=True, help="Wait, show its log, print its result, exit with its outcome."
)
@click.option(
    "--within", metavar="SECONDS", type=duration, help="Wait at most this long (exit code 5)."
)
@client_options
def submit(context: click.Context, /, **given: Any) -> None:
    """Submit a job of KIND, with arguments as KEY=VALUE or as JSON.

    A VALUE that is JSON is taken as JSON, any other as text: n=1 is a number, n='"1"' and name=x
    are text. The app declares a queue, target, priority, timeout, expiry and retries for the kind,
    and workers that serve the kind, or did lately, tell of them. An option here replaces one.

    With --format etcdq, KIND is a file that describes a container as the Etcd Job Queue does. A
    worker with --exec and a container engine runs it.
    """
    if given["format"] is not None:
        given = {**given, "kind": CONTAINER_KIND, "document": _document(given)}
    args = _arguments(given)
    waits = given["wait"] or given["within"] is not None

    async def talk(connection: Connection) -> tuple[SubmitAnswer, Ended | None]:
        job = await _submission(connection, given, args)
        (answer,) = await connection.submit((job,), given["strict"])
        if answer.code:
            raise from_code(answer.code, answer.message)
        if waits:
            note(_in_words(answer))
        else:
            print_answer(given["as_json"], jsonable.submitted(answer), _in_words(answer))
        await _say_if_nobody_takes_it(connection, job, answer)
        ended = await wait_for(connection, answer, job.kind, given["within"]) if waits else None
        return answer, ended

    answer, ended = ask(context, talk)
    if waits:
        _end_with(given, answer, ended)


def _in_words(answer: SubmitAnswer) -> str:
    if answer.existing:
        return f"job {answer.number} has this unique key already ({answer.id})"
    return f"submitted job {answer.number} ({answer.id})"


async def _say_if_nobody_takes_it(
    connection: Connection, job: Submission, answer: SubmitAnswer
) -> None:
    """Tells the user if no worker serves the kind. The job is accepted: nothing fails here."""
    if answer.existing:
        return
    try:
        kinds = {one.kind for one in (await connection.capacity()).kinds}
    except LongshoreError:
        return
    if job.kind not in kinds:
        note(
            f"no live worker takes jobs of kind '{job.kind}' now{nearest(job.kind, kinds)}; job "
            f"{answer.number} waits for one. What its app declares (queue, retries and such) is "
            f"known only from workers: `longshore job {answer.number}` shows what it was given"
        )


# waiting


def _end_with(given: dict[str, Any], answer: SubmitAnswer, ended: Ended | None) -> None:
    """Prints the outcome; raises unless the job succeeded in time."""
    if ended is None:
        raise NotFinished(
            f"job {answer.number} has not ended within {given['within']:g} s and goes on; "
            f"`longshore why {answer.number}` says where it is"
        )
    _print_outcome(given, answer, ended, raw=given["data"] is not None)
    if ended.state is JobState.CANCELLED:
        raise JobCancelled(f"job {answer.number} was cancelled")
    if ended.state is not JobState.SUCCEEDED:
        more = f"`longshore job {answer.number}` shows more"
        raise JobFailed(f"{unsuccessful(answer.number, ended)}; {more}")


def _print_outcome(given: dict[str, Any], answer: SubmitAnswer, ended: Ended, *, raw: bool) -> None:
    if given["as_json"]:
        print_json(jsonable.ended(answer, ended, raw=raw))
    elif ended.state is JobState.SUCCEEDED and raw:
        sys.stdout.buffer.write(ended.result or b"")
        sys.stdout.buffer.flush()
    elif ended.state is JobState.SUCCEEDED:
        print_json(jsonable.payload(ended.result))


# the job


def _arguments(given: dict[str, Any]) -> bytes:
    """The arguments as they are stored. Wrong options raise here, before a dispatcher is asked."""
    if given["delay_s"] is not None and given["run_at"] is not None:
        raise InvalidInput("--delay and --run-at exclude each other; give one of them")
    if "document" in given:
        args = pack(given["document"], f"the arguments of job '{given['kind']}'")
    else:
        args = _raw_bytes(given) if given["data"] is not None else _packed(given)
    _job(given, args, Terms())
    return args


async def _submission(connection: Connection, given: dict[str, Any], args: bytes) -> Submission:
    """The job, on the terms that its app declares where no option sets another."""
    return _job(given, args, Terms.of_kind(await connection.kind(given["kind"])))


def _job(given: dict[str, Any], args: bytes, declared: Terms) -> Submission:
    terms = declared.but(**_chosen(given))
    raw = given["data"] is not None
    return terms.submission(terms.id or fresh_id(), given["kind"], args, raw=raw)


def _chosen(given: dict[str, Any]) -> dict[str, object]:
    """The options that are given, in place of what the app declares."""
    in_texts = options_in_texts(given["limits"], given["debounce"], given["fair_by"])
    names = [name for name in SubmitOptions.__annotations__ if given.get(name) is not None]
    return {name: given[name] for name in names} | in_texts


def _document(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the container that a document describes."""
    if given["args"] is not None or given["data"] is not None or given["pairs"]:
        raise InvalidInput(
            "a document says all about its job; leave out --args, --data and KEY=VALUE"
        )
    name = given["kind"]
    return etcdq.arguments(etcdq.read_job(_read(name if name == "-" else f"@{name}", "--format")))


def _raw_bytes(given: dict[str, Any]) -> bytes:
    if given["args"] is not None or given["pairs"]:
        raise InvalidInput("a raw job has only --data; leave out --args and KEY=VALUE")
    return _read(given["data"], "--data")


def _packed(given: dict[str, Any]) -> bytes:
    args = arguments_of(given["args"], given["pairs"])
    return pack(args, f"the arguments of job '{given['kind']}'")


def arguments_of(text: str | None, given: Sequence[str]) -> dict[str, Any]:
    """The arguments that --args and NAME=VALUE give."""
    args = {} if text is None else _json_object(text)
    args.update(pairs.values_of(given))
    return args


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_read(text, "--args"), type=dict[str, Any])
    except RecursionError:
        raise InvalidInput("--args is nested too deep; make it flatter") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f'--args is not a JSON object ({error}); it looks like \'{{"a": 1, "b": "text"}}\''
        ) from None


def _read(text: str, flag: str) -> bytes:
    """The bytes that an option names: its own text, a file's or standard input's."""
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{flag}: cannot read {text[1:]}: {error.strerror}") from None
