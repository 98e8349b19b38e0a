"""`longshore workers`, `dispatchers` and `capacity`: who is there, and how many jobs they take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from longshore.cli import completing
from longshore.cli.options import ask, client_options, examples, format_option
from longshore.cli.view.lists import (
    capacity_view,
    dispatchers_table,
    workers_screen,
    workers_table,
)
from longshore.cli.view.show import View, print_json, print_text
from longshore.cli.view.watching import Shown, refuse_watch, show, watch_options
from longshore.client import etcdq, jsonable
from longshore.client.connection import Connection
from longshore.errors import InvalidInput, NotFound
from longshore.model.worker import DrainVerdict, WorkerView
from longshore.run.ready import note
from longshore.wire.messages import DispatcherAnswer, DrainAnswer

_WORDS = {
    DrainVerdict.DRAINING: "worker {} drains: it finishes what it runs, and leaves",
    DrainVerdict.ALREADY_DRAINING: "worker {} drains already",
    DrainVerdict.GONE: "worker {} is gone already",
    DrainVerdict.AMBIGUOUS: "several workers go by {}; give more of the id",
    DrainVerdict.NOT_FOUND: "there is no worker {}; `longshore workers` lists those there are",
}
_CODES = {
    DrainVerdict.AMBIGUOUS: InvalidInput.exit_code,
    DrainVerdict.NOT_FOUND: NotFound.exit_code,
}
_Seen = tuple[tuple[WorkerView, ...], tuple[DispatcherAnswer, ...]]


@click.command(
    name="workers",
    short_help="List the workers, or drain some.",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore workers",
        "longshore workers --all",
        "longshore workers --watch",
        "longshore workers --json | jq '.[].id'",
        "longshore workers drain dock-1:4711",
        "longshore workers --format etcdq | jq '.[].InstanceId'",
    ),
)
@click.argument("action", type=click.Choice(["list", "drain"]), metavar="[drain]", default="list")
@click.argument("names", nargs=-1, metavar="[WORKER…]", shell_complete=completing.workers)
@click.option(
    "--all",
    "with_all",
    is_flag=True,
    help="Show gateways, and workers that are gone, too; the JSON always has them.",
)
@format_option("Show all workers as that system's documents, in JSON.")
@watch_options
@client_options
def list_workers(
    context: click.Context, /, action: str, names: tuple[str, ...], with_all: bool, **given: Any
) -> int:
    """List the workers, or drain some.

    Gateways are workers, too: they send callbacks. --all shows them.

    A drained worker takes no more jobs, finishes those it runs and leaves. Jobs that run longer
    than drain_s it hands back. WORKER is its id, the beginning of its id, or its name.
    """
    if action == "drain":
        return _drain(context, names)
    if given["format"] is not None:
        refuse_watch(context)
        print_json(ask(context, etcdq.shown_workers))
        return 0
    show(
        context,
        Shown(
            _look,
            lambda seen: [jsonable.worker(view) for view in seen[0]],
            lambda seen: _workers_view(seen, with_all),
            remark=lambda seen: "" if with_all else _hidden(seen),
        ),
    )
    return 0


async def _look(connection: Connection) -> _Seen:
    return await connection.workers(), await connection.dispatchers()


def _hidden(seen: _Seen) -> str:
    gone = sum(not (worker.alive or worker.info.gateway) for worker in seen[0])
    if not gone:
        return ""
    are = "worker is" if gone == 1 else "workers are"
    return f"{gone} {are} gone; `longshore workers --all` shows them too"


def _workers_view(seen: _Seen, with_all: bool) -> View:
    workers = [one for one in seen[0] if with_all or (one.alive and not one.info.gateway)]
    names = {one.id: one.name for one in seen[1]}
    return View(
        [workers_table(workers, names)],
        "no workers; start one: longshore worker --app module:app",
        screen=[workers_screen(workers, names, datetime.now(UTC))],
    )


def _drain(context: click.Context, names: tuple[str, ...]) -> int:
    if not names:
        raise click.UsageError("name the worker", context)
    refuse_watch(context)
    answers = ask(context, lambda connection: connection.drain(names))
    if context.params["as_json"]:
        print_json([jsonable.plain(answer) for answer in answers])
    else:
        _say(answers)
    return max((_CODES.get(answer.verdict, 0) for answer in answers), default=0)


def _say(answers: Sequence[DrainAnswer]) -> None:
    for answer in answers:
        name = answer.name or str(answer.id or answer.worker)
        words = _WORDS[answer.verdict].format(name)
        if answer.verdict in _CODES:
            note(f"error: {words}")
        else:
            print_text(words)


@click.command(
    name="dispatchers",
    epilog=examples("longshore dispatchers", "longshore dispatchers --watch --every 5"),
)
@watch_options
@client_options
def list_dispatchers(context: click.Context, /, **given: Any) -> None:
    """List the dispatchers, and how many workers each attends.

    A dispatcher is silent if it did not renew its lease in time.
    """
    show(
        context,
        Shown(
            Connection.dispatchers,
            lambda found: [jsonable.dispatcher(one) for one in found],
            lambda found: View([dispatchers_table(found)], "no dispatchers"),
        ),
    )


@click.command(
    name="capacity",
    short_help="Say how many more jobs the workers can take.",
    epilog=examples("longshore capacity", "longshore capacity --json | jq '.kinds[].free'"),
)
@watch_options
@client_options
def show_capacity(context: click.Context, /, **given: Any) -> None:
    """Say how many more jobs of each kind the workers can take at once.

    Kinds that share a pool share its free slots. Workers that drain do not count.
    """
    show(context, Shown(Connection.capacity, jsonable.plain, capacity_view))
