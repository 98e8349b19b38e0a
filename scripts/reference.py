"""Writes the parts of the reference that follow from the code.

    python scripts/reference.py           writes them
    python scripts/reference.py --check   says which are stale; exit code 1 if one is

They are kept in the repository, where a code host shows them; a test runs the check.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

import longshore
import longshore.testing
from longshore import errors
from longshore.cli.main import cli
from longshore.client.decorator import Decorator
from longshore.client.program_kinds import DeclaresPrograms
from longshore.client.rules import Ending
from longshore.core import metering
from longshore.core.blocking import CAUSES
from longshore.core.lifecycle import MEANINGS, MOVES, TERMINAL, diagram
from longshore.executors.host.growth import AddedJob, AddedMap, OwnGroup
from longshore.model.group import (
    Condition,
    GateVerdict,
    Group,
    GroupVerdict,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import (
    CancelVerdict,
    HistoryEntry,
    Job,
    JobError,
    JobState,
    Options,
    Progress,
    RetryVerdict,
)
from longshore.model.log import LogLine
from longshore.testing.plugin import StartKit
from reference_http import http_api

ROOT = Path(__file__).resolve().parents[1]
NOTE = "<!-- Written from the code by scripts/reference.py; to write it anew: make reference -->\n"

INTERNAL = {
    "App.handlers",
    "App.lifespan",
    "Call.accepted",
    "Call.keep_id",
    "Call.take_id",
    "Call.unpacked",
    "Kind.map_call",
    "OwnGroup.nodes",
    "Handle.remember",
    "Kind.handler",
    "Kit.begin",
    "Kit.catch_up",
    "Kit.catch_up_async",
    "Kit.desk",
    "Kit.end",
}
"""Public by name, for Longshore's other parts only."""

INTERNAL_PARAMETERS = {"App": {"connection", "new_id"}}
MADE_BY_OTHERS = {
    "Ending",
    *("Call", "Context", "GroupBuilder", "GroupHandle", "GroupJob", "Handle", "Kind", "Kit"),
    *("AddedJob", "AddedMap", "GroupMap", "OwnGroup", "SubGroup"),
    *("StartKit", "SubmittedJob"),
}
"""Classes that nobody makes by calling them."""
PARTS = (DeclaresPrograms,)
"""Classes whose members are shown with those of the classes that they are a part of."""


# Python


def sdk() -> str:
    """The public names of `longshore` and `longshore.testing`."""
    names = ("App", "Kind", "Call", "Handle", "Context", "current", "Retry", "Fail", "Cancelled")
    ends = {one for one in longshore.__all__ if isinstance(getattr(longshore, one), Ending)}
    rest = sorted(set(longshore.__all__) - {*names, *ends, "__version__", "errors", "GIVEN"})
    parts = [
        "# The Python interface\n",
        NOTE,
        "`import longshore`, and for tests `longshore.testing`. How they are used together is in "
        "the guides: [jobs](../jobs.md), [groups](../groups.md), [workers](../workers.md), "
        "[logs](../logs.md), [testing](../testing.md), [transactions](../transactions.md). What "
        "can be raised is in [errors](errors.md).\n",
        "A method whose name ends in `_async` is for coroutines; the one without blocks, and "
        "refuses to where an event loop runs. A default that is shown as `…` is what was declared "
        "before.\n",
        _entry(longshore.App, "App"),
        _options_of_job(),
        *(_entry(getattr(longshore, name), name) for name in (*names[1:], *rest)),
        "## `GIVEN`\n",
        "The default of a job's parameter that the worker gives: see "
        "[resources](../workers.md#resources-opened-once-given-to-jobs).\n",
        _entry(Ending, "Ending", _words_of(ends)),
        _entry(Job, "Job", "What `handle.job()` answers."),
        *(_entry(part, part.__name__) for part in (Options, HistoryEntry, JobError, Progress)),
        _entry(LogLine, "LogLine", "What `handle.logs()` answers a list of."),
        _entry(CancelVerdict, "CancelVerdict", "What `handle.cancel()` answers."),
        _entry(RetryVerdict, "RetryVerdict", "What `handle.retry()` answers."),
        _entry(Group, "Group", "What `group_handle.group()` answers."),
        _entry(NodeView, "NodeView", "What `group_handle.jobs()` answers a list of."),
        _entry(Condition, "Condition"),
        _entry(OwnGroup, "OwnGroup", "What `ctx.group` is."),
        _entry(AddedJob, "AddedJob", "What `ctx.group.add()` answers."),
        _entry(AddedMap, "AddedMap", "What `ctx.group.map()` answers."),
        _entry(RetryPlan, "RetryPlan", "What `group_handle.retry()` answers."),
        _entry(RunPlan, "RunPlan", "What `group_handle.rerun_plan()` answers."),
        _entry(GateVerdict, "GateVerdict", "What `group_handle.open()` answers."),
        _entry(GroupVerdict, "GroupVerdict", "What `group_handle.cancel()` answers."),
        "## In tests: `longshore.testing`\n",
        "The fixture `longshore_kit` is a `StartKit`; pytest finds it by itself.\n",
        *(
            _entry(getattr(longshore.testing, name), name)
            for name in ("run_inline", "Kit", "SubmittedJob")
        ),
        _entry(StartKit, "StartKit"),
    ]
    return "\n".join(parts)


def _words_of(ends: Collection[str]) -> str:
    *most, last = (f"`{name}`" for name in sorted(ends))
    return f"What `exit(…)` and `signal(…)` answer; {', '.join(most)} and {last} are such, too."


def _entry(thing: Any, name: str, more: str = "") -> str:
    """A class with what it has, or a function."""
    lines = [f"## `{name}`\n"]
    if inspect.isclass(thing):
        if name not in MADE_BY_OTHERS and not _is_data(thing):
            lines.append(_code(f"{name}{_signature(thing, name)}"))
    else:
        lines.append(_code(f"{name}{_signature(thing, name)}"))
    lines += [more + "\n"] * bool(more)
    lines.append(_text(thing) + "\n")
    if inspect.isclass(thing):
        lines += _members(thing, name)
    return "\n".join(lines)


def _is_data(thing: type) -> bool:
    return hasattr(thing, "__struct_fields__") or issubclass(thing, enum.Enum)


def _members(thing: type, name: str) -> Iterator[str]:
    if issubclass(thing, enum.Enum):
        yield "\n".join(f"- `{name}.{one.name}`: `{one.value}`" for one in thing) + "\n"
        return
    if hasattr(thing, "__struct_fields__"):
        yield "\n".join(f"- `{field}`" for field in _fields(thing)) + "\n"
        return
    attributes = [one for one in _attributes(thing) if f"{name}.{one}" not in INTERNAL]
    if attributes and name != "App":
        yield "It has " + ", ".join(f"`{one}`" for one in attributes) + ".\n"
    public = {
        attribute: value
        for owner in (thing, *(one for one in thing.__bases__ if one in PARTS))
        for attribute, value in vars(owner).items()
        if not attribute.startswith("_") or attribute == "__call__"
        if f"{name}.{attribute}" not in INTERNAL
    }
    for attribute, value in public.items():
        if attribute.removesuffix("_async") not in public.keys() - {attribute}:
            yield from _member(value, f"{name}.{attribute}", public.get(f"{attribute}_async"))


def _attributes(thing: type) -> list[str]:
    """What `__init__` sets and does not hide."""
    code = inspect.getsource(thing.__init__) if "__init__" in vars(thing) else ""  # type: ignore[misc]
    return re.findall(r"^        self\.([a-z]\w*) = ", code, re.MULTILINE)


def _fields(thing: type) -> Iterator[str]:
    for owner in reversed(thing.__mro__):
        for field, annotation in vars(owner).get("__annotations__", {}).items():
            yield f"{field}: {annotation}"


def _member(value: Any, qualified: str, awaited: Any) -> Iterator[str]:
    """A property, or a method with the one of the same name that is awaited."""
    if isinstance(value, property):
        yield f"### `{qualified}`\n"
        yield _text(value) + "\n"
    elif inspect.isfunction(value):
        shown = qualified.removesuffix(".__call__")
        methods = [value] if awaited is None else [value, awaited]
        yield f"### `{shown}()`\n"
        yield _code("\n".join(_call(method, shown) for method in methods))
        yield _text(value) + "\n"
        if awaited is not None and _text(awaited) != _text(value):
            yield f"`{awaited.__name__}`: {_text(awaited)}\n"


def _call(method: Callable[..., Any], qualified: str) -> str:
    """How a method is called; what it gives once awaited."""
    name = qualified.rpartition(".")[2]
    if method.__name__.endswith("_async"):
        word = "await" if inspect.iscoroutinefunction(method) else "async for … in"
        name = f"{word} {method.__name__}"
    return f"{name}{_signature(method, qualified)}"


def _options_of_job() -> str:
    """`@app.job` is a property; what it takes is in the last overload of what it gives."""
    options = typing.get_overloads(Decorator.__call__)[-1]
    parts = ["### Options of `@app.job`\n", _code(f"app.job{_signature(options, 'job')}")]
    return "\n".join([*parts, "What each means: [jobs](../jobs.md#declaring).\n"])


def _signature(thing: Callable[..., Any], name: str) -> str:
    """A signature as a reader wants it: no self, nothing internal, a parameter a line if long."""
    if inspect.isclass(thing) and issubclass(thing, BaseException) and _is_plain(thing):
        return "(message)"
    signature = inspect.signature(thing)
    hidden = {"self"} | INTERNAL_PARAMETERS.get(name, set())
    kept = [p for p in signature.parameters.values() if p.name not in hidden]
    words = list(_parameters(kept))
    gives = signature.return_annotation
    arrow = "" if gives is signature.empty or inspect.isclass(thing) else f" -> {_type(gives)}"
    line = f"({', '.join(words)}){arrow}"
    return line if len(line) < 80 else "(\n    " + ",\n    ".join(words) + f",\n){arrow}"


def _is_plain(error: type) -> bool:
    return error.__init__ in (Exception.__init__, BaseException.__init__)  # type: ignore[misc]


def _parameters(kept: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for one in kept:
        stars = "*" * (one.kind is one.VAR_POSITIONAL) + "**" * (one.kind is one.VAR_KEYWORD)
        if one.kind is one.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        kind = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
        default = "…" if one.default is UNSET else repr(one.default)
        yield f"{stars}{one.name}{kind}" + ("" if one.default is one.empty else f" = {default}")


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace(" | UnsetType", "")


def _text(thing: Any) -> str:
    """A docstring as Markdown; the pages it names become links."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", text)


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


# the command line


def commands() -> str:
    """What `--help` says of every command."""
    parts = [
        "# The help of every command\n",
        NOTE,
        "As `longshore COMMAND --help` prints it. What commands have in common, exit codes and the "
        "finer points are in [the command line](../cli.md).\n",
    ]
    parts += [f"## {path}\n\n{_code(text)}" for path, text in _helps(cli, "longshore", None)]
    return "\n".join(parts)


def _helps(
    command: click.Command, path: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    name = path.rpartition(" ")[2]
    settings = {"terminal_width": 96, **command.context_settings}
    context = click.Context(command, parent, info_name=name, **settings)
    yield path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            if inner is not None and not inner.hidden:
                yield from _helps(inner, f"{path} {word}", context)


# errors


def table_of_errors() -> str:
    """Every error, its code and its exit code."""
    rows = [_row(error, depth) for error, depth in _tree(errors.LongshoreError, 0)]
    parts = [
        "# Errors\n",
        NOTE,
        "What Longshore raises on purpose is a `longshore.errors.LongshoreError`. A message says "
        "what happened, to what, and what to do next.\n",
        "| error | code | exit code | when, and what to do |\n|---|---|---|---|",
        *rows,
        "",
        "An error further to the right of an arrow is also the one before it: whoever catches "
        "`Unavailable` catches `StoreUnavailable` too. `code` is the word for it in JSON and "
        "on the wire; the exit code is that of the command line, and 0 is success "
        "([all exit codes](../cli.md#exit-codes)).\n",
        "What the error of a *job* says is in `JobFailed`: `reason` is one of "
        "`raised`, `timed_out`, `expired` (it did not begin in time), `crashed`, `poisonous` (it "
        "took its process down too often), "
        "`invalid_arguments`, `invalid_result` and `unknown_kind`; `type` is the name of the "
        "exception, `traceback` where it was raised.\n",
    ]
    return "\n".join(parts)


def _tree(error: type[errors.LongshoreError], depth: int) -> Iterator[tuple[type, int]]:
    yield error, depth
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child, depth + 1)


def _row(error: type[errors.LongshoreError], depth: int) -> str:
    if "\n\n" not in (inspect.getdoc(error) or "") and depth:
        raise SystemExit(f"errors.{error.__name__}: its docstring does not say what to do")
    said = " ".join(_text(error).split())
    return f"| {'→ ' * depth}`{error.__name__}` | `{error.code}` | {error.exit_code} | {said} |"


# the states of a job


def states() -> str:
    """The table of moves, in words, as a table and as a picture."""
    kinds = [(state, "yes" if state in TERMINAL else "no") for state in JobState]
    moves = [(a, event, b) for a, events in MOVES.items() for event, b in events.items()]
    terminal = ", ".join(f"`{state}`" for state in JobState if state in TERMINAL)
    parts = [
        "# The states of a job\n",
        NOTE,
        "A job is in one of these states; `longshore why JOB` says in words why.\n",
        "| state | the job | has ended |\n|---|---|---|",
        *(f"| `{state}` | {MEANINGS[state]} | {ended} |" for state, ended in kinds),
        "",
        f"{terminal} are terminal: an accepted job ends in exactly one of them. Only a manual "
        "`longshore retry` leads out again, and opens a new round; the outcome of the earlier "
        "round stays in the job's history. A success is never undone.\n",
        "## What leads from one to another\n",
        "What is not in this table changes nothing: a late report of an attempt that was given up, "
        "a cancel of a job that has ended. The table is `longshore/core/lifecycle.py`, and the "
        "stores are tested against it.\n",
        "| from | what happens | to |\n|---|---|---|",
        *(f"| `{start}` | {event} | `{end}` |" for start, event, end in moves),
        "",
        "The same as a [Mermaid](https://mermaid.js.org) diagram:\n",
        f"```mermaid\n{diagram()}```\n",
    ]
    return "\n".join(parts)


# metrics


def table_of_metrics() -> str:
    """Every metric, with its labels and what it says."""
    parts = [
        "# Metrics\n",
        NOTE,
        "What is shown where, and how exact it is: [metrics](../metrics.md).\n",
        "## Of the whole store\n",
        "One dispatcher at a time tells these for all; the sum over dispatchers is the truth.\n",
        _metrics(metering.OF_STORE),
        "## Of each dispatcher\n",
        _metrics(metering.OF_DISPATCHERS),
        "## Of each gateway\n",
        _metrics(metering.OF_GATEWAYS),
        "## What holds ready jobs back\n",
        "The values of the label `cause`:\n",
        "| cause | the job |",
        "|---|---|",
        *(f"| `{cause.value}` | {words} |" for cause, words in CAUSES.items()),
        "",
    ]
    return "\n".join(parts)


def _metrics(some: tuple[metering.Metric, ...]) -> str:
    rows = ["| metric | type | labels | what it says |", "|---|---|---|---|"]
    for one in some:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        rows.append(f"| `{one.shown}` | {one.type.value} | {labels} | {one.help} |")
    return "\n".join([*rows, ""])


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/sdk.md": sdk,
    "docs/reference/cli.md": commands,
    "docs/reference/errors.md": table_of_errors,
    "docs/reference/http.md": lambda: http_api(NOTE),
    "docs/states.md": states,
    "docs/reference/metrics.md": table_of_metrics,
}


def main(words: list[str]) -> int:
    """Writes what changed, or says what has."""
    stale = [name for name, made in PAGES.items() if _kept(name) != made()]
    for name in stale:
        if words == ["--check"]:
            print(f"{name} is not what the code says; run: make reference", file=sys.stderr)
        else:
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_text(PAGES[name]())
            print(f"wrote {name}")
    return 1 if stale and words else 0


def _kept(name: str) -> str | None:
    path = ROOT / name
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
