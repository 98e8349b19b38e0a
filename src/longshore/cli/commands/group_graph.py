"""`longshore group graph`: the graph of a group, for a terminal, a picture or a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from msgspec import structs

from longshore.cli.namesakes import of_group
from longshore.cli.options import Decorated, ask
from longshore.cli.view.graph import Drawing, graph_dot, graph_json, graph_view
from longshore.cli.view.show import as_text, json_document, print_text, print_view
from longshore.cli.view.svg import graph_svg
from longshore.client.connection import Connection, Ref
from longshore.core.folding import MAX_FOLDS
from longshore.core.group_words import shown_state
from longshore.core.layout import lay_out
from longshore.core.text import visible
from longshore.errors import InvalidInput, TooLarge
from longshore.model.group import Group, NodeView

MAX_DRAWN: Final = 10_000
"""How many jobs a picture may have that is not folded."""

_FORMATS: Final[dict[str, Callable[[Drawing], str]]] = {
    "text": lambda drawing: visible(as_text(graph_view(drawing))).rstrip("\n"),
    "dot": graph_dot,
    "json": lambda drawing: json_document(graph_json(drawing)),
    "svg": graph_svg,
}


def graph_options(command: Decorated) -> Decorated:
    """Adds the options of `group graph`."""
    command = click.option(
        "-o", "--output", metavar="FILE", help="Write the graph to FILE; its ending says how."
    )(command)
    command = click.option(
        "--fold/--no-fold",
        default=None,
        help=f"Draw alike jobs as one, at most {MAX_FOLDS} in all (the default), or every job.",
    )(command)
    return click.option(
        "--format",
        "graph_format",
        type=click.Choice([*_FORMATS]),
        help="How `group graph` draws (text).",
    )(command)


def refuse_graph_options(context: click.Context) -> None:
    """Raises if the user gave options of `group graph` to another action."""
    given = {"--format": "graph_format", "--fold": "fold", "-o": "output"}
    for option, name in given.items():
        if context.params[name] is not None:
            raise click.UsageError(f"{option} is for `group graph`", context)


def draw(context: click.Context, ref: Ref) -> None:
    """Prints the graph of a group, or writes it to a file."""
    given = context.params
    file: str | None = given["output"]
    wanted = _format(context, file)
    folded = given["fold"] is not False
    group, nodes = ask(context, lambda connection: _read(connection, ref))
    if not folded and wanted == "svg" and len(nodes) > MAX_DRAWN:
        raise TooLarge(
            f"group {ref} has {len(nodes):,} jobs, and a picture that is not folded may have "
            f"{MAX_DRAWN:,}; leave out --no-fold, or take --format json"
        )
    drawing = Drawing(group, lay_out(nodes, folded=folded))
    if file is not None:
        _save(file, _FORMATS[wanted](drawing))
    elif wanted == "text":
        print_view(graph_view(drawing))
    else:
        print_text(_FORMATS[wanted](drawing))


def _format(context: click.Context, file: str | None) -> str:
    """The format that --format, --json or the ending of the file names."""
    given: Any = context.params["graph_format"]
    if context.params["as_json"]:
        if given not in (None, "json"):
            raise click.UsageError(f"--json and --format {given} exclude each other", context)
        return "json"
    ending = Path(file).suffix[1:].lower() if file is not None else ""
    return given or (ending if ending in _FORMATS else "text")


async def _read(connection: Connection, ref: Ref) -> tuple[Group, list[NodeView]]:
    group = await of_group(connection, ref, connection.group(ref))
    nodes = [node async for node in connection.all_nodes(group.id)]
    return group, [structs.replace(node, state=shown_state(node)) for node in nodes]


def _save(file: str, document: str) -> None:
    try:
        Path(file).write_text(f"{document}\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}") from None
