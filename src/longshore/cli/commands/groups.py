"""`longshore groups` and `longshore group`: look at groups, and change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from longshore.cli.commands.group_add import add_jobs, add_options, refuse_add_options
from longshore.cli.commands.group_graph import draw, graph_options, refuse_graph_options
from longshore.cli.namesakes import of_group
from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.outlook import with_outlook
from longshore.cli.view.groups import (
    FirstFailure,
    ShownGroup,
    group_json,
    group_view,
    groups_screen,
    groups_table,
    rerun_words,
    retry_words,
    why_lines,
)
from longshore.cli.view.show import View, print_answer, print_json, print_text
from longshore.cli.view.watching import Shown, every_option, show, watch_options
from longshore.client import jsonable
from longshore.client.callbacks import callbacks_of
from longshore.client.connection import Connection, Ref
from longshore.client.group_handle import check_opened
from longshore.core.lifecycle import TERMINAL
from longshore.errors import InvalidInput, NotFound, WrongState
from longshore.model.group import (
    ENDED_GROUPS,
    GateVerdict,
    Group,
    GroupFilter,
    GroupState,
    GroupVerdict,
)
from longshore.model.ids import parse_ref
from longshore.model.job import JobFilter, JobState
from longshore.payload.values import pack
from longshore.wire.messages import WhyAnswer

_ACTIONS: Final = (
    "show",
    "watch",
    "why",
    "graph",
    "open",
    "cancel",
    "pause",
    "resume",
    "retry",
    "rerun",
    "add",
)
MOST_WHYS: Final = 5
"""Of how many jobs in each state `group why` tells."""
_FAILED_LOOKED_AT: Final = 1_000
_TOLD: Final = tuple(state for state in reversed(JobState) if state not in TERMINAL)
"""The states of which `group why` tells, those that are nearest to their end first."""


@click.command(
    name="groups",
    epilog=examples(
        "longshore groups",
        "longshore groups --state running --watch",
        "longshore groups --name nightly --limit 5 --json",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in GroupState]),
    metavar="STATE",
    help=f"Only groups in this state: {', '.join(GroupState)}; repeatable.",
)
@click.option("--name", metavar="NAME", help="Only groups with this name.")
@click.option("--before", type=int, metavar="NUMBER", help="Only groups with a lower number.")
@click.option(
    "--limit",
    type=Whole(1, 1000),
    metavar="N",
    default=50,
    help="The most groups to list (50); up to 1000.",
)
@watch_options
@client_options
def list_groups(context: click.Context, /, **given: Any) -> None:
    """List groups, newest first."""
    states = tuple(GroupState(state) for state in given["states"])
    wanted = GroupFilter(states, given["name"], given["before"], given["limit"])

    def view(found: tuple[Group, ...]) -> View:
        screen = groups_screen(found, datetime.now(UTC))
        return View([groups_table(found)], "no such groups", screen=[screen])

    def as_json(found: tuple[Group, ...]) -> list[dict[str, Any]]:
        # A list has no counts.
        return [{k: v for k, v in jsonable.plain(one).items() if k != "counts"} for one in found]

    show(context, Shown(lambda connection: connection.groups(wanted), as_json, view))


@click.command(
    name="group",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore group show 42",
        "longshore group watch 42 --every 500ms",
        "longshore group why 42",
        "longshore group graph 42",
        "longshore group graph 42 -o graph.svg",
        "longshore group cancel 42",
        "longshore group cancel 42 extract/",
        "longshore group open 42 approve --value true",
        "longshore group pause 42",
        "longshore group retry 42 --plan",
        "longshore group retry 42 --from fetch",
        "longshore group retry 42 --from press --args '{\"copies\": 500}'",
        "longshore group rerun 42 --plan",
        "longshore group rerun 42 --from press",
        "longshore group add 42 press copies=200 --key extra --after lay_out,city",
        "longshore group add 42 --file more.yaml -p day=2026-11-16",
    ),
)
@click.argument(
    "action",
    type=click.Choice(_ACTIONS),
    metavar="|".join(_ACTIONS),
)
@click.argument("ref", callback=lambda context, parameter, text: parse_ref(text, "group"))
@click.argument("key", required=False)
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE…]")
@add_options
@click.option(
    "--from",
    "keys",
    multiple=True,
    metavar="KEY",
    help="With retry and rerun: run this job and all that depend on it; repeatable. PREFIX/, or a "
    "sub-group: all below it.",
)
@click.option(
    "--args",
    "arguments",
    metavar="JSON",
    help="With retry: other arguments for the one job that --from names. With add: its arguments.",
)
@click.option("--value", metavar="JSON", help="With open: the result of the gate (null).")
@click.option(
    "--plan", is_flag=True, help="With retry and rerun: print what would run; change nothing."
)
@every_option
@graph_options
@client_options
def group(context: click.Context, /, action: str, ref: Ref, key: str | None, **given: Any) -> None:
    """Look at one group, or change it.

    REF is the group's number or its id. `show` shows how far it is, when it is expected to end, its
    critical path (the longest chain of jobs that have not ended), what failed first and what that
    cost; `watch` does so again and again until it has ended; `why` says in words what runs, what
    does not start and what waits for what; `graph` draws which job depends on which, in layers;
    `cancel` cancels what has not ended, and workers stop what runs; with a KEY only this job and
    all below it; `open` opens the gate KEY; `pause` lets no more of its jobs begin, until `resume`;
    `retry` runs again what did not succeed; `rerun` runs a group that has ended anew, as a new
    group that takes over what succeeded; `add` adds a job of the kind KEY, with arguments as
    NAME=VALUE or as JSON, or the jobs of a file, to a group that runs or is paused.

    Exits with 3 if there is no such group, with 2 if it is in a state in which that cannot be done.
    """
    _refuse_options(context, action, key)
    context.params["watch"] = action == "watch"
    match action:
        case "graph":
            draw(context, ref)
        case "why":
            _why(context, ref)
        case "cancel" | "pause" | "resume":
            _change(context, ref, action, key or "")
        case "open":
            open_gate(context, ref, key or "", given["value"])
        case "retry":
            _retry(context, ref, given["keys"], given["plan"], given["arguments"])
        case "rerun":
            _rerun(context, ref, given["keys"], given["plan"])
        case "add":
            add_jobs(context, ref, key, given)
        case _:
            show(context, _shown(ref))


def _refuse_options(context: click.Context, action: str, key: str | None) -> None:
    """Raises if the user gave what belongs to another action."""
    given = context.params
    if given["every"] is not None and action != "watch":
        raise click.UsageError("--every is for `group watch`", context)
    if action != "graph":
        refuse_graph_options(context)
    if action not in ("retry", "rerun") and (given["keys"] or given["plan"]):
        raise click.UsageError("--from and --plan are for `group retry` and `rerun`", context)
    if action not in ("retry", "add") and given["arguments"] is not None:
        raise click.UsageError("--args is for `group retry` and `add`", context)
    if action != "add":
        refuse_add_options(context)
    if action != "open" and given["value"] is not None:
        raise click.UsageError("--value is for `group open`", context)
    if action == "open" and key is None:
        raise click.UsageError("`group open` needs the KEY of the gate", context)
    if key is not None and action not in ("open", "cancel", "add"):
        raise click.UsageError(f"`group {action}` takes no KEY", context)


def _shown(ref: Ref) -> Shown[ShownGroup]:
    return Shown(
        lambda connection: _look_closely(connection, ref),
        group_json,
        group_view,
        lambda found: found.group.state in ENDED_GROUPS,
    )


async def look_at(connection: Connection, ref: Ref) -> ShownGroup:
    """A group, and what failed first in it."""
    found = await of_group(connection, ref, connection.group(ref))
    how = found.id, found.round, found.watchers
    calls = await callbacks_of(connection, *how, ended=found.state in ENDED_GROUPS)
    return ShownGroup(found, await _first_failure(connection, found), callbacks=tuple(calls))


async def _look_closely(connection: Connection, ref: Ref) -> ShownGroup:
    """A group, what failed first in it and what that cost, its critical path, its expected end."""
    return await with_outlook(connection, await look_at(connection, ref))


async def _first_failure(connection: Connection, group: Group) -> FirstFailure | None:
    """The job that failed first, of the newest thousand that failed."""
    if not group.counts.get(JobState.FAILED.value):
        return None
    wanted = JobFilter((JobState.FAILED,), group=group.id, limit=_FAILED_LOOKED_AT)
    failed = [job for job in (await connection.jobs(wanted)).jobs if job.ended_at is not None]
    first = min(failed, key=lambda job: (job.ended_at, job.number), default=None)
    if first is None:
        return None
    return FirstFailure(first, (await connection.why(first.id)).key)


_DONE: Final = {
    GroupVerdict.CANCELLING: "is being cancelled: workers stop what runs of it",
    GroupVerdict.PAUSED: "is paused: what runs of it goes on, and nothing more begins",
    GroupVerdict.RUNNING: "goes on",
}


def _change(context: click.Context, ref: Ref, action: str, prefix: str) -> None:
    as_json: bool = context.params["as_json"]

    async def change(connection: Connection) -> GroupVerdict:
        if action == "cancel":
            return await connection.cancel_group(ref, prefix)
        return await connection.pause_group(ref, action == "pause")

    verdict = ask(context, change)
    if verdict in _DONE or as_json:
        below = f"'{prefix}' of " if prefix else ""
        words = f"{below}group {ref} {_DONE.get(verdict, '')}"
        print_answer(as_json, {"group": str(ref), "verdict": verdict.value}, words)
    match verdict:
        case GroupVerdict.NOT_FOUND:
            raise NotFound(f"there is no group {ref}; `longshore groups` lists them")
        case GroupVerdict.ALREADY_ENDED:
            shows = f"`longshore group show {ref}` shows how"
            what = f"all of '{prefix}' in group {ref}" if prefix else f"group {ref}"
            raise WrongState(f"{what} has ended already; {shows}")
        case GroupVerdict.NOT_RUNNING:
            raise WrongState(
                f"group {ref} is neither running nor paused; `longshore group show {ref}` shows it"
            )


def open_gate(context: click.Context, ref: Ref, key: str, value: str | None) -> None:
    """Opens a gate, and says so."""
    packed = None if value is None else pack(_json("--value", value), f"the value for '{key}'")
    verdict = ask(context, lambda connection: connection.open_gate(ref, key, packed))
    check_opened(f"group {ref}", key, verdict)
    words = "is open" if verdict is GateVerdict.OPENED else "was open already"
    document = {"group": str(ref), "key": key, "verdict": verdict.value}
    print_answer(context.params["as_json"], document, f"gate '{key}' of group {ref} {words}")


def _json(option: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f"{option} {text!r} is not JSON: {error}; quote text: '\"text\"'"
        ) from None


def _retry(
    context: click.Context, ref: Ref, keys: Sequence[str], plan: bool, arguments: str | None
) -> None:
    as_json: bool = context.params["as_json"]
    args = None if arguments is None else pack(_named_arguments(arguments), "--args")
    made = ask(
        context, lambda connection: connection.retry_group(ref, keys, dry_run=plan, args=args)
    )
    if not made.refused or as_json:
        print_answer(as_json, jsonable.plain(made), retry_words(ref, made, plan))
    if made.refused:
        raise WrongState(f"group {ref} cannot be retried: {made.refused}")


def _rerun(context: click.Context, ref: Ref, keys: Sequence[str], plan: bool) -> None:
    as_json: bool = context.params["as_json"]
    made = ask(context, lambda connection: connection.rerun_group(ref, keys, dry_run=plan))
    if not made.refused or as_json:
        print_answer(as_json, jsonable.plain(made), rerun_words(ref, made))
    if made.refused:
        raise WrongState(f"group {ref} cannot be run anew: {made.refused}")


def _named_arguments(text: str) -> dict[str, Any]:
    found = _json("--args", text)
    if not isinstance(found, dict):
        raise InvalidInput(f'--args {text!r} is not a map by name, like \'{{"url": "…"}}\'')
    return found


def _why(context: click.Context, ref: Ref) -> None:
    async def look(connection: Connection) -> tuple[ShownGroup, list[WhyAnswer]]:
        found = await look_at(connection, ref)
        return found, await _whys(connection, found.group)

    shown, whys = ask(context, look)
    if context.params["as_json"]:
        print_json({**group_json(shown), "why": jsonable.plain(whys)})
    else:
        print_text("\n".join(why_lines(shown, whys, MOST_WHYS)))


async def _whys(connection: Connection, group: Group) -> list[WhyAnswer]:
    """Why some jobs of each state that is no end are in it."""
    whys: list[WhyAnswer] = []
    for state in _TOLD:
        if group.counts.get(state.value):
            wanted = JobFilter((state,), group=group.id, limit=MOST_WHYS)
            for job in (await connection.jobs(wanted)).jobs:
                whys.append(await connection.why(job.id))
    return whys
