"""`longshore submit`: one job, and if asked its outcome."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import structs

from longshore.cli import completing
from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.view import jsonable
from longshore.cli.view.show import error_line, print_json, print_text
from longshore.cli.view.waiting import wait_for
from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.client.kind import Terms
from longshore.config import parse_seconds
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
from longshore.payload.schemas import nearest
from longshore.payload.values import pack
from longshore.run.ready import note
from longshore.wire.messages import SubmitAnswer

_NO_NUMBER = re.compile("[+-]?(nan|NaN|inf|Infinity)")


def _seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """The seconds in a text like 1.5, 500ms, 2s, 5m or 1h."""
    seconds = parse_seconds(text) if text is not None else None
    if text is not None and (seconds is None or not 0 <= seconds < float("inf")):
        raise click.BadParameter(
            f"'{text}' is not a duration, like 1.5, 500ms, 2s, 5m or 1h", context, parameter
        )
    return seconds


def _moment(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> datetime | None:
    """The time in an RFC 3339 text, which names its zone."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        moment = None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise click.BadParameter(
            f"'{text}' is not a time with its zone, like 2026-01-31T12:00:00Z", context, parameter
        )
    return moment


@click.command(
    epilog=examples(
        "longshore submit add a=1 b=2",
        "longshore submit add a=1 b=2 --wait > result.json",
        'longshore submit resize --args \'{"file": "a.png", "size": 300}\' --retries 3',
        "longshore submit report --args @report.json --queue nightly --delay 2h",
        "longshore submit raw --data hello --wait",
    )
)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE…]")
@click.option("--args", "args", metavar="JSON", help="Arguments as a JSON object, @FILE, or - .")
@click.option("--data", metavar="TEXT", help="Bytes for a raw job instead: text, @FILE, or - .")
@click.option("--queue", metavar="NAME", shell_complete=completing.queues, help="Which queue.")
@click.option("--target", metavar="NAME", help="What machine it needs, like linux-x86_64.")
@click.option(
    "--priority",
    type=Whole(-32768, 32767),
    metavar="N",
    help="Higher goes first; -32768 to 32767.",
)
@click.option("--delay", metavar="SECONDS", callback=_seconds, help="Not before so long from now.")
@click.option(
    "--run-at",
    metavar="TIME",
    callback=_moment,
    help="Not before this time, like 2026-01-31T12:00:00Z.",
)
@click.option(
    "--timeout", metavar="SECONDS", callback=_seconds, help="Stop an attempt that takes longer."
)
@click.option(
    "--retries",
    type=Whole(0, MAX_ATTEMPTS - 1),
    metavar="N",
    help="How often to try again if it fails.",
)
@click.option(
    "--backoff",
    metavar="SECONDS",
    callback=_seconds,
    help="How long before the first retry; then doubling.",
)
@click.option("--unique-key", help="At most one such job of this kind at a time.")
@click.option("--label", "labels", multiple=True, help="A tag; may be repeated.")
@click.option("--id", "id", type=click.UUID, help="The job's id; the same again is the same job.")
@click.option("--strict", is_flag=True, help="Refuse a kind that no live worker serves.")
@click.option(
    "--wait", is_flag=True, help="Wait, show what it says, print its result, exit with its outcome."
)
@click.option(
    "--within", metavar="SECONDS", callback=_seconds, help="Wait at most so long (exit code 5)."
)
@client_options
@click.pass_context
def submit(context: click.Context, /, **given: Any) -> None:
    """Submit a job of KIND, with arguments as KEY=VALUE or as JSON.

    A VALUE is JSON if it parses as JSON, else text: n=1 is a number, n='"1"' is text, name=x is
    text. What the app declares for the kind (queue, target, priority, timeout, retries) holds
    unless an option says otherwise, if a worker serves it or did until lately.
    """
    args = _arguments(given)
    if given["wait"] or given["within"] is not None:
        _submit_and_wait(context, given, args)
        return

    async def talk(connection: Connection) -> None:
        job = await _submission(connection, given, args)
        answer = await _accepted(connection, job, given["strict"])
        if given["as_json"]:
            print_json(jsonable.submitted(answer))
        else:
            print_text(_in_words(answer))
        await _say_if_nobody_takes_it(connection, job, answer)

    ask(context, given, talk)


async def _accepted(connection: Connection, job: Submission, strict: bool) -> SubmitAnswer:
    """What the dispatcher says of the job; raises if it was refused."""
    (answer,) = await connection.submit([job], strict)
    if answer.code:
        raise from_code(answer.code, answer.message)
    return answer


def _in_words(answer: SubmitAnswer) -> str:
    if answer.existing:
        return f"job {answer.number} has this unique key already ({answer.id})"
    return f"submitted job {answer.number} ({answer.id})"


async def _say_if_nobody_takes_it(
    connection: Connection, job: Submission, answer: SubmitAnswer
) -> None:
    """Says so if the job has to wait for a worker. It is accepted, so nothing fails here."""
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


def _submit_and_wait(context: click.Context, given: dict[str, Any], args: bytes) -> None:
    within_s: float | None = given["within"]

    async def talk(connection: Connection) -> tuple[SubmitAnswer, Ended | None]:
        job = await _submission(connection, given, args)
        answer = await _accepted(connection, job, given["strict"])
        note(_in_words(answer))
        await _say_if_nobody_takes_it(connection, job, answer)
        return answer, await wait_for(connection, answer, job.kind, within_s)

    answer, ended = ask(context, given, talk)
    if ended is None:
        raise NotFinished(
            f"job {answer.number} has not ended within {within_s:g} s and goes on; "
            f"`longshore why {answer.number}` says where it is"
        )
    _print_outcome(given, answer, ended, raw=given["data"] is not None)
    _raise_for(answer, ended)


def _print_outcome(given: dict[str, Any], answer: SubmitAnswer, ended: Ended, *, raw: bool) -> None:
    if given["as_json"]:
        print_json(jsonable.ended(answer, ended, raw=raw))
    elif ended.state is JobState.SUCCEEDED and raw:
        sys.stdout.buffer.write(ended.result or b"")
        sys.stdout.buffer.flush()
    elif ended.state is JobState.SUCCEEDED:
        print_json(jsonable.payload(ended.result))


def _raise_for(answer: SubmitAnswer, ended: Ended) -> None:
    """Raises unless the job succeeded."""
    if ended.state is JobState.SUCCEEDED:
        return
    if ended.state is JobState.CANCELLED:
        raise JobCancelled(f"job {answer.number} was cancelled")
    what = error_line(ended.error) if ended.error else ended.state.value
    more = f"`longshore job {answer.number}` shows more"
    raise JobFailed(f"job {answer.number} failed, {what}; {more}")


# the job


def _arguments(given: dict[str, Any]) -> bytes:
    """The arguments as they are stored; what is wrong with the flags is said before any asking."""
    if given["delay"] is not None and given["run_at"] is not None:
        raise InvalidInput("--delay and --run-at exclude each other; give one of them")
    args = _raw_bytes(given) if given["data"] is not None else _packed(given)
    _job(given, args, Terms())
    return args


async def _submission(connection: Connection, given: dict[str, Any], args: bytes) -> Submission:
    """The job, on the terms that its app declares where no flag says otherwise."""
    told = None if given["data"] is not None else await connection.kind(given["kind"])
    return _job(given, args, Terms.of_kind(told))


def _job(given: dict[str, Any], args: bytes, declared: Terms) -> Submission:
    chosen = {name: given[flag] for name, flag in _FLAGS.items() if given[flag] is not None}
    terms = declared.but(**chosen, labels=given["labels"])
    job = terms.submission(given["id"] or fresh_id(), given["kind"], args)
    if given["data"] is None:
        return job
    return structs.replace(job, options=structs.replace(job.options, raw=True))


_FLAGS = {
    "queue": "queue",
    "target": "target",
    "priority": "priority",
    "run_at": "run_at",
    "delay_s": "delay",
    "timeout_s": "timeout",
    "retries": "retries",
    "backoff_s": "backoff",
    "unique_key": "unique_key",
}
"""Which flag says which of a job's terms."""


def _raw_bytes(given: dict[str, Any]) -> bytes:
    if given["args"] is not None or given["pairs"]:
        raise InvalidInput("--data is all a raw job has; leave out --args and KEY=VALUE")
    return _read(given["data"], "--data")


def _packed(given: dict[str, Any]) -> bytes:
    args = _json_object(given["args"]) if given["args"] is not None else {}
    args.update(_pairs(given["pairs"]))
    return pack(args, f"the arguments of job '{given['kind']}'")


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_read(text, "--args"), type=dict[str, Any])
    except RecursionError:
        raise InvalidInput("--args is nested too deep; make it flatter") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f'--args is not a JSON object ({error}); it looks like \'{{"a": 1, "b": "text"}}\''
        ) from None


def _pairs(texts: Sequence[str]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for key, value in map(_pair, texts):
        if key in pairs:
            raise InvalidInput(f"'{key}' is given twice; give each argument once")
        pairs[key] = value
    return pairs


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidInput(f"'{text}' is not KEY=VALUE; write it like width=300")
    try:
        return key, msgspec.json.decode(value)
    except RecursionError:
        raise InvalidInput(f"'{key}' is nested too deep; make it flatter") from None
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{text}: {str(error).lower()}; {_as_text(key, value)}") from None
    except msgspec.DecodeError:
        if _NO_NUMBER.fullmatch(value):
            raise InvalidInput(f"{text}: JSON has no such number; {_as_text(key, value)}") from None
        return key, value


def _as_text(key: str, value: str) -> str:
    return f"if text is meant, quote it: {key}='\"{value}\"'"


def _read(text: str, flag: str) -> bytes:
    """The bytes that a flag gives: its own, a file's or standard input's."""
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{flag}: cannot read {text[1:]}: {error.strerror}") from None
