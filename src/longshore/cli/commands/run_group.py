"""`longshore run`: submits the group that a YAML or JSON file describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from longshore.cli.commands.groups import look_at
from longshore.cli.file_input import file_bytes, file_name
from longshore.cli.options import ask, client_options, duration, examples
from longshore.cli.view.group_waiting import wait_for_group
from longshore.cli.view.groups import (
    ShownGroup,
    called,
    failure_words,
    group_json,
    group_view,
)
from longshore.cli.view.plan import plan_json, plan_view
from longshore.cli.view.show import print_answer, print_json, print_view
from longshore.client.connection import Connection
from longshore.client.group_plan import run_times, submit_group
from longshore.client.ids import fresh_id
from longshore.client.kind import Terms
from longshore.core.callback_limits import as_callback
from longshore.errors import (
    JobCancelled,
    JobFailed,
    LongshoreError,
    NotFinished,
)
from longshore.model.group import GroupHead, GroupState, GroupSubmitted
from longshore.run.ready import note

if TYPE_CHECKING:
    from longshore.client.group_file import GroupFile


@click.command(
    epilog=examples(
        "longshore run flow.yaml",
        "longshore run flow.yaml -p day=2026-11-16 --wait",
        "longshore run flow.yaml -p day=2026-11-16 --plan",
        "longshore run flow.json --strict --json",
    )
)
@click.argument("file", metavar="FILE")
@click.option(
    "-p",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="The value for ${KEY} in the file; repeatable.",
)
@click.option("--callback", metavar="URL", help="Call this URL when the group has ended.")
@click.option("--plan", is_flag=True, help="Print what would run, in layers; submit nothing.")
@click.option("--strict", is_flag=True, help="Refuse kinds that no live worker serves.")
@click.option("--wait", is_flag=True, help="Wait, show how far it is, exit with its outcome.")
@click.option(
    "--within", metavar="SECONDS", type=duration, help="Wait at most this long (exit code 5)."
)
@client_options
def run(context: click.Context, /, file: str, **given: Any) -> None:
    """Run the jobs that FILE describes, as one group.

    FILE is YAML, or JSON if its name ends in .json; - is YAML from standard input. The queue,
    retries and so on of a job are those that its app declares, as far as live workers tell of them;
    what the file says replaces them.
    """
    from longshore.client.group_file import read_group  # it imports YAML, which takes a while

    described = read_group(file_name(file), file_bytes(file), given["parameters"])
    if given["callback"] is not None:
        described = replace(described, callback=as_callback(given["callback"]))
    head, nodes = described.in_order(fresh_id, {})
    if given["plan"]:
        if given["as_json"]:
            print_json(plan_json(head, nodes))
        else:
            print_view(plan_view(head, nodes))
        return
    waits = given["wait"] or given["within"] is not None

    async def talk(connection: Connection) -> ShownGroup | None:
        terms = await _terms(connection, described)
        times = await run_times(connection, described.kinds)
        head, nodes = described.in_order(fresh_id, terms, times)
        try:
            answer = await submit_group(connection, head, nodes, strict=given["strict"])
        except LongshoreError as error:
            raise described.located(error) from None
        words = f"submitted group {answer.number} ({head.name}) of {head.jobs:,} jobs ({answer.id})"
        if waits:
            note(words)
        else:
            print_answer(given["as_json"], _submitted(head, answer), words)
        await _say_if_nobody_takes_them(connection, described)
        if not waits:
            return None
        if await wait_for_group(connection, answer, head, given["within"]) is None:
            raise NotFinished(
                f"group {answer.number} has not ended within {given['within']:g} s and goes on; "
                f"`longshore group why {answer.number}` says where it is"
            )
        return await look_at(connection, answer.id)

    ended = ask(context, talk)
    if ended is not None:
        _end_with(ended, given["as_json"])


def _submitted(head: GroupHead, answer: GroupSubmitted) -> dict[str, Any]:
    named = {"id": str(answer.id), "number": answer.number, "name": head.name}
    return {**named, "jobs": head.jobs, "state": answer.state.value}


def _end_with(ended: ShownGroup, as_json: bool) -> None:
    """Prints how a group ended; raises unless it succeeded."""
    if as_json:
        print_json(group_json(ended))
    else:
        print_view(group_view(ended))
    group = ended.group
    if group.state is GroupState.CANCELLED:
        raise JobCancelled(f"{called(group)} was cancelled")
    if group.state is not GroupState.SUCCEEDED:
        raise JobFailed(f"{failure_words(ended)}; `longshore jobs --group {group.number}` lists it")


async def _terms(connection: Connection, described: GroupFile) -> dict[str, Terms]:
    """What the apps of the kinds declare, as far as workers tell of it."""
    return {kind: Terms.of_kind(await connection.kind(kind)) for kind in described.kinds}


async def _say_if_nobody_takes_them(connection: Connection, described: GroupFile) -> None:
    """Tells the user of kinds that no worker serves. The group is accepted: nothing fails here."""
    try:
        served = {one.kind for one in (await connection.capacity()).kinds}
    except LongshoreError:
        return
    missing = [kind for kind in described.kinds if kind not in served]
    if missing:
        names = ", ".join(f"'{kind}'" for kind in missing)
        note(f"no live worker takes jobs of kind {names} now; those jobs wait for one")
