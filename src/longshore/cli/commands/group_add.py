"""`longshore group add`: adds a job, or the jobs of a file, to a group that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from longshore.cli.commands.submit import arguments_of
from longshore.cli.file_input import file_bytes, file_name
from longshore.cli.options import Decorated, ask
from longshore.cli.view.show import print_answer
from longshore.client.connection import Connection, Ref
from longshore.client.group_plan import add_to_group
from longshore.client.ids import fresh_id
from longshore.client.kind import Terms
from longshore.errors import LongshoreError
from longshore.model.group import AddedNode, Condition, GroupSubmitted
from longshore.model.ids import derive_id

if TYPE_CHECKING:
    from longshore.client.group_file import GroupFile


def add_options(command: Decorated) -> Decorated:
    """Adds the options of `group add`."""
    for names, more in (
        (("--strict",), {"is_flag": True, "help": "With add: refuse kinds that nobody serves."}),
        (
            ("-p", "parameters"),
            {
                "multiple": True,
                "metavar": "KEY=VALUE",
                "help": "With add: the value for ${KEY} in the file; repeatable.",
            },
        ),
        (
            ("--file",),
            {
                "metavar": "FILE",
                "help": "With add: add the jobs that FILE lists; - is standard input.",
            },
        ),
        (
            ("--on",),
            {
                "type": click.Choice([one.value for one in Condition]),
                "help": "With add: how those must end that it comes after (succeeded).",
            },
        ),
        (
            ("--after",),
            {
                "multiple": True,
                "metavar": "KEY[,KEY…]",
                "help": "With add: the jobs of the group that it comes after; repeatable.",
            },
        ),
        (
            ("--key", "new_key"),
            {
                "metavar": "KEY",
                "help": "With add: the key of the new job (its kind, with an ending).",
            },
        ),
    ):
        command = click.option(*names, **more)(command)
    return command


def refuse_add_options(context: click.Context) -> None:
    """Raises if the user gave options of `group add` to another action."""
    names = {"--key": "new_key", "--after": "after", "--on": "on", "--file": "file"}
    given = {**names, "-p": "parameters", "--strict": "strict", "NAME=VALUE": "pairs"}
    for option, name in given.items():
        if context.params[name]:
            raise click.UsageError(f"{option} is for `group add`", context)


def add_jobs(context: click.Context, ref: Ref, kind: str | None, given: dict[str, Any]) -> None:
    """Adds what the user describes to a group; all of it, or nothing."""
    described = _described(context, kind, given)
    request = fresh_id()

    async def talk(connection: Connection) -> tuple[GroupSubmitted, list[AddedNode]]:
        group = await connection.group(ref)
        terms = {one: Terms.of_kind(await connection.kind(one)) for one in described.kinds}
        plan = described.additions(group, request, fresh_id, terms)
        try:
            return await add_to_group(connection, plan, request, strict=given["strict"])
        except LongshoreError as error:
            raise (error if given["file"] is None else described.located(error)) from None

    answer, nodes = ask(context, talk)
    ids = [str(derive_id(request, at)) for at in range(len(nodes))]
    jobs = [{"key": node.key, "id": id} for node, id in zip(nodes, ids, strict=True)]
    named = ", ".join(f"'{node.key}'" for node in nodes[:5]) + (", …" if len(nodes) > 5 else "")
    words = f"added {len(nodes):,} jobs to group {answer.number}: {named}"
    if len(nodes) == 1:
        words = f"added {named} to group {answer.number} ({ids[0]})"
    told = {"id": str(answer.id), "number": answer.number, "state": answer.state.value}
    print_answer(given["as_json"], {**told, "jobs": jobs}, words)


def _described(context: click.Context, kind: str | None, given: dict[str, Any]) -> GroupFile:
    from longshore.client.group_file import described_job, read_additions  # they import YAML

    if given["file"] is not None:
        if (
            kind is not None
            or given["arguments"]
            or any(given[name] for name in ("pairs", "new_key", "after", "on"))
        ):
            raise click.UsageError("with --file, the file says which jobs; give no KIND", context)
        name = file_name(given["file"])
        return read_additions(name, file_bytes(given["file"]), given["parameters"])
    if given["parameters"]:
        raise click.UsageError("-p fills in a file; give --file", context)
    if kind is None:
        raise click.UsageError("`group add` needs the KIND of the job, or --file", context)
    fields = {
        "kind": kind,
        "args": arguments_of(given["arguments"], given["pairs"]),
        "after": [key for some in given["after"] for key in some.split(",") if key],
    }
    if given["new_key"] is not None:
        fields["key"] = given["new_key"]
    if given["on"] is not None:
        fields["on"] = given["on"]
    return described_job(fields)
