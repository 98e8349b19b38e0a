"""`longshore exec` and `longshore container run`: run a program as a job, and end as it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from longshore.cli import completing
from longshore.cli.options import Whole, ask, client_options, duration, examples
from longshore.cli.view.show import OutputClosed, print_answer, print_json, unsuccessful, why_line
from longshore.client import jsonable
from longshore.client.connection import Connection
from longshore.client.ids import fresh_id
from longshore.client.kind import Terms
from longshore.client.logs import LogReader
from longshore.core.limits import MAX_ATTEMPTS
from longshore.core.programs import described
from longshore.core.text import visible
from longshore.errors import InvalidInput, JobCancelled, LongshoreError, NotFinished, from_code
from longshore.model.job import Ended, JobState, Submission
from longshore.model.log import ENGINE, STDERR, STDOUT, STEP, LogLine
from longshore.model.program import COMMAND_KIND, CONTAINER_KIND
from longshore.payload.values import pack
from longshore.run.ready import note
from longshore.wire.messages import SubmitAnswer

LOOK_S: Final = 0.2
"""How often the output is looked for."""
STUCK_S: Final = 2.0
"""How often it is asked why the program does not run."""
_SUBMIT: Final = (
    "queue",
    "target",
    "priority",
    "timeout_s",
    "retries",
    "labels",
    "id",
    "resources",
)


def _program_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what all programs can be given, and how they are submitted."""
    for flags, kwargs in reversed(_OPTIONS):
        command = click.option(*flags, **kwargs)(command)
    return command


_OPTIONS: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (
        ("--follow/--detach",),
        {"default": True, "help": "Show its output and end as it ends (default), or return."},
    ),
    (
        ("-e", "--env"),
        {"multiple": True, "metavar": "NAME=VALUE", "help": "A variable for it; repeatable."},
    ),
    (
        ("--on", "rules"),
        {
            "multiple": True,
            "metavar": "RULE",
            "help": "What an end means, like 'exit(75): retry(5)'; repeatable.",
        },
    ),
    (
        ("--input", "inputs"),
        {
            "multiple": True,
            "metavar": "NAME[@VERSION]",
            "help": "Files that it finds in its folder; repeatable.",
        },
    ),
    (
        ("--output", "outputs"),
        {
            "multiple": True,
            "metavar": "NAME[:PATTERN]",
            "help": "Files in its folder that are published afterwards; repeatable.",
        },
    ),
    (
        ("--checkpoint", "checkpoint"),
        {
            "multiple": True,
            "metavar": "PATTERN",
            "help": "Files that the next attempt gets back if it exits with 85; repeatable.",
        },
    ),
    (
        ("--secret", "secrets"),
        {"multiple": True, "metavar": "NAME", "help": "A secret that it gets as a file."},
    ),
    (("--memory",), {"metavar": "SIZE", "help": "How much memory it may use, like 512m."}),
    (
        ("--timeout", "timeout_s"),
        {"metavar": "SECONDS", "type": duration, "help": "Stop it if it takes longer."},
    ),
    (
        ("--retries",),
        {"type": Whole(0, MAX_ATTEMPTS - 1), "metavar": "N", "help": "How often to try again."},
    ),
    (
        ("--queue",),
        {"metavar": "NAME", "shell_complete": completing.queues, "help": "The job's queue."},
    ),
    (("--target",), {"metavar": "NAME", "help": "The machine it needs, like linux-x86_64."}),
    (
        ("--resources",),
        {"metavar": "AMOUNTS", "help": "What it takes of its worker, like cpu=2,gpu=1."},
    ),
    (("--priority",), {"type": Whole(-32768, 32767), "metavar": "N", "help": "Higher goes first."}),
    (("--label", "labels"), {"multiple": True, "help": "A tag; repeatable."}),
    (("--id",), {"type": click.UUID, "help": "The job's id; submitted again, it is the same job."}),
    (
        ("--within",),
        {"metavar": "SECONDS", "type": duration, "help": "Wait at most this long (exit code 5)."},
    ),
)


@click.command(
    name="exec",
    short_help="Run a command as a job, and end as it ends.",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "longshore exec -- echo hello",
        "longshore exec -e LEVEL=3 --timeout 10m -- make all",
        "longshore exec --on 'exit(75): retry(5)' -- ./import.sh",
        "longshore exec --detach -- sh -c 'make all && make test'",
        "longshore exec --stdin @names.txt -- wc -l",
    ),
)
@click.option("--stdin", metavar="TEXT", help="What it reads: text, @FILE, or - for your own.")
@click.option("--folder", metavar="PATH", help="Where it runs, below its own folder.")
@click.option("--cpu-time", "cpu_s", type=duration, metavar="SECONDS", help="CPU it may use.")
@click.option("--open-files", type=Whole(1), metavar="N", help="Files it may have open.")
@click.option("--processes", type=Whole(1), metavar="N", help="Processes its user may have.")
@_program_options
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGUMENT…]")
@client_options
def exec_command(context: click.Context, /, argv: tuple[str, ...], **given: Any) -> None:
    """Run a command as a job, on a worker that was started with --exec.

    Its output is shown as it comes, and the exit code is that of the command, or one of those below
    if it did not exit by itself. There is no shell unless you name one. It runs in a folder of its
    own, which is removed afterwards.
    """
    if not argv:
        raise InvalidInput("name a command, like: longshore exec -- echo hello")
    limits = {name: given[name] for name in ("cpu_s", "open_files", "processes")}
    own = {"argv": list(argv), "stdin": _text(given["stdin"]), "folder": given["folder"]}
    _run(context, COMMAND_KIND, {**own, **_described(given, limits)}, given)


@click.group(
    epilog=examples(
        "longshore container run busybox -- echo hello",
        "longshore container run --json busybox -- date",
    )
)
def container() -> None:
    """Run containers as jobs."""


@container.command(
    name="run",
    short_help="Run a container as a job, and end as it ends.",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "longshore container run busybox -- echo hello",
        "longshore container run --memory 512m --network trainer:1 -- python train.py",
    ),
)
@click.option("--user", metavar="USER", help="As whom it runs, in the container.")
@click.option("--folder", metavar="PATH", help="Where it runs, in the container.")
@click.option("--network", is_flag=True, help="Let it reach the network.")
@click.option("--cpus", type=float, metavar="N", help="How many CPUs it may use.")
@click.option("--pids", type=Whole(1), metavar="N", help="How many processes it may have.")
@_program_options
@click.argument("image")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND…]")
@client_options
def container_run(context: click.Context, /, image: str, **given: Any) -> None:
    """Run a container as a job, on a worker that was started with --exec and has an engine.

    Its output is shown as it comes, and the exit code is that of the container.
    """
    limits = {name: given[name] for name in ("cpus", "pids")}
    words = list(given["command"])
    own = {
        "image": image,
        "command": words[1:] if words[:1] == ["--"] else words,
        "user": given["user"],
        "folder": given["folder"],
        "network": given["network"] or None,
    }
    _run(context, CONTAINER_KIND, {**own, **_described(given, limits)}, given)


# what is submitted


def _described(given: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    named = {"memory": given["memory"], **limits}
    return {
        "env": _variables(given["env"]),
        "rules": list(given["rules"]),
        "inputs": list(given["inputs"]),
        "outputs": [_output(text) for text in given["outputs"]],
        "secrets": list(given["secrets"]),
        "checkpoint": list(given["checkpoint"]),
        "limits": {name: value for name, value in named.items() if value is not None},
    }


def _variables(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, is_given, value = text.partition("=")
        if not is_given:
            raise InvalidInput(f"-e {text!r:.100}: give a name and a value, like -e LEVEL=3")
        found[name] = value
    return found


def _output(text: str) -> dict[str, Any]:
    name, _, pattern = text.partition(":")
    return {"fileset": name, "patterns": [pattern]} if pattern else {"fileset": name}


def _text(given: str | None) -> str | None:
    if given is None or not (given == "-" or given.startswith("@")):
        return given
    try:
        return sys.stdin.read() if given == "-" else Path(given[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--stdin {given}: it cannot be read as text: {error}") from None


def _submission(kind: str, args: dict[str, Any], given: dict[str, Any]) -> Submission:
    told = {name: value for name, value in args.items() if value}
    described(kind, told)
    chosen = {name: given[name] for name in _SUBMIT}
    terms = Terms().but(**{name: value for name, value in chosen.items() if value is not None})
    return terms.submission(terms.id or fresh_id(), kind, pack(told, "the command"))


# running it


def _run(context: click.Context, kind: str, args: dict[str, Any], given: dict[str, Any]) -> None:
    job = _submission(kind, args, given)

    async def talk(connection: Connection) -> tuple[SubmitAnswer, Ended | None]:
        (answer,) = await connection.submit((job,))
        if answer.code:
            raise from_code(answer.code, answer.message)
        if not given["follow"]:
            words = f"submitted job {answer.number} ({answer.id})"
            print_answer(given["as_json"], jsonable.submitted(answer), words)
            return answer, None
        await _say_if_nobody_takes_it(connection, kind, answer)
        return answer, await _followed(connection, answer, given)

    answer, ended = ask(context, talk)
    if given["follow"]:
        _end_with(context, answer, ended, given)


async def _say_if_nobody_takes_it(connection: Connection, kind: str, answer: SubmitAnswer) -> None:
    try:
        kinds = {one.kind for one in (await connection.capacity()).kinds}
    except LongshoreError:
        return
    if kind not in kinds:
        note(
            f"no live worker takes jobs of kind '{kind}' now; job {answer.number} waits for one "
            "that is started with --exec"
        )


async def _followed(
    connection: Connection, answer: SubmitAnswer, given: dict[str, Any]
) -> Ended | None:
    """Shows the output until the job has ended; None if that takes too long."""
    loop = asyncio.get_running_loop()
    within_s = given["within"]
    deadline = loop.time() + (float("inf") if within_s is None else within_s)
    log, reason = LogReader(connection, answer.id), _Reason(connection, answer.id)
    try:
        while True:
            left_s = max(0.0, deadline - loop.time())
            ended = await connection.wait([answer.id], min(left_s, LOOK_S))
            async for line in log.news():
                _show(line, stdout_is_ours=given["as_json"])
            if ended or left_s <= LOOK_S:
                return ended[0] if ended else None
            if words := await reason.news():
                note(words)
    except BaseException:
        number = answer.number
        note(f"job {number} goes on; `longshore cancel {number}` cancels it")
        raise


class _Reason:
    """Why a program does not run: no worker takes it, or it is tried again later."""

    def __init__(self, connection: Connection, id: UUID) -> None:
        self._connection = connection
        self._id = id
        self._look_at = asyncio.get_running_loop().time() + STUCK_S
        self._last = ""

    async def news(self) -> str:
        """The answer of `longshore why` now and then, if it has changed."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return ""
        self._look_at = now + STUCK_S
        answer = await self._connection.why(self._id)
        if answer.state not in (JobState.READY, JobState.DELAYED):
            return ""
        # Behind a bracket is how long a delay still takes, which changes with each look.
        said, self._last = self._last, answer.why.partition(" (")[0]
        return why_line(answer) if self._last != said else ""


def _show(line: LogLine, *, stdout_is_ours: bool) -> None:
    if line.stream in (STEP, ENGINE):
        return
    is_out = line.stream == STDOUT and not stdout_is_ours
    text = line.text if line.stream in (STDOUT, STDERR) else f"longshore: {line.text}"
    stream = sys.stdout if is_out else sys.stderr
    try:
        print(visible(text) if stream.isatty() else text, file=stream, flush=True)
    except BrokenPipeError:
        raise OutputClosed from None


def _end_with(
    context: click.Context, answer: SubmitAnswer, ended: Ended | None, given: dict[str, Any]
) -> None:
    """Ends as the program ended."""
    number = answer.number
    if ended is None:
        raise NotFinished(
            f"job {number} has not ended within {given['within']:g} s and goes on; "
            f"`longshore why {number}` says where it is"
        )
    if given["as_json"]:
        print_json(jsonable.ended(answer, ended, raw=False))
    if ended.state is JobState.CANCELLED:
        raise JobCancelled(f"job {number} was cancelled")
    if ended.state is JobState.SUCCEEDED:
        return
    note(unsuccessful(number, ended))
    code = ended.error.exit_code if ended.error is not None else None
    context.exit(1 if code is None else code)
