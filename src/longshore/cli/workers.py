"""`longshore workers`, `dispatchers` and `capacity`: who works, for whom, and how much more."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli import jsonable
from longshore.cli.fleet import capacity_table, dispatchers_table, pools_table, workers_table
from longshore.cli.options import ask, client_options, examples
from longshore.cli.show import print_json, print_table, print_text
from longshore.client.connection import Connection
from longshore.errors import InvalidInput, NotFound
from longshore.model.worker import WorkerView
from longshore.wire.messages import DispatcherAnswer, DrainAnswer, DrainVerdict

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
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore workers",
        "longshore workers --json | jq '.[].id'",
        "longshore workers drain dock-1:4711",
    ),
)
@click.argument("action", type=click.Choice(["list", "drain"]), metavar="[drain]", default="list")
@click.argument("names", nargs=-1, metavar="[WORKER…]")
@client_options
@click.pass_context
def list_workers(
    context: click.Context, /, action: str, names: tuple[str, ...], **given: Any
) -> int:
    """List the workers, live ones and those that ended lately, or drain some.

    A drained worker is given nothing more, finishes what it runs (for at most drain_s, then hands
    it back) and leaves. WORKER is its id, the beginning of its id, or its name.
    """
    if action == "drain":
        return _drain(context, given, names)
    _list(context, given)
    return 0


def _list(context: click.Context, given: dict[str, Any]) -> None:
    async def look(connection: Connection) -> _Seen:
        return await connection.workers(), await connection.dispatchers()

    workers, dispatchers = ask(context, given, look)
    if given["as_json"]:
        print_json([jsonable.worker(view) for view in workers])
    else:
        print_table(
            workers_table(workers, {one.id: one.name for one in dispatchers}),
            "no workers yet; start one: longshore worker --app module:app",
        )


def _drain(context: click.Context, given: dict[str, Any], names: tuple[str, ...]) -> int:
    if not names:
        raise click.UsageError("name the worker", context)
    answers = ask(context, given, lambda connection: connection.drain(names))
    if given["as_json"]:
        print_json([jsonable.plain(answer) for answer in answers])
    else:
        for answer in answers:
            print_text(_WORDS[answer.verdict].format(_called(answer)))
    return max((_CODES.get(answer.verdict, 0) for answer in answers), default=0)


def _called(answer: DrainAnswer) -> str:
    return answer.name or str(answer.id or answer.worker)


@click.command(name="dispatchers", epilog=examples("longshore dispatchers"))
@client_options
@click.pass_context
def list_dispatchers(context: click.Context, /, **given: Any) -> None:
    """List the dispatchers, and how many workers each attends.

    One is silent if whoever answers has not seen it renew its lease for longer than that lasts.
    """
    found = ask(context, given, Connection.dispatchers)
    if given["as_json"]:
        print_json([jsonable.plain(one) for one in found])
    else:
        print_table(dispatchers_table(found), "no dispatchers")


@click.command(
    name="capacity",
    epilog=examples("longshore capacity", "longshore capacity --json | jq '.kinds[].free'"),
)
@client_options
@click.pass_context
def show_capacity(context: click.Context, /, **given: Any) -> None:
    """Say how many more jobs of each kind the workers can take at once.

    Kinds that share a pool share its free slots. Workers that drain count for nothing.
    """
    found = ask(context, given, Connection.capacity)
    if given["as_json"]:
        print_json(jsonable.plain(found))
        return
    print_table(capacity_table(found), "no worker takes jobs; `longshore workers` says more")
    if found.kinds:
        print_text("")
        print_table(pools_table(found), "")
