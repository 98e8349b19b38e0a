"""`longshore chaos`: real processes, broken while they work, and judged."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from longshore.cli.options import Whole, duration, examples, json_option
from longshore.cli.view.show import json_line, print_text
from longshore.run.ready import note

if TYPE_CHECKING:
    from longshore.testing.chaos.run import Wanted

BROKEN = 1
Command = TypeVar("Command", bound=Callable[..., Any])
_SHAPING = (
    "dispatchers",
    "workers",
    "plain_workers",
    "web_workers",
    "gateways",
    "clients",
    "rate",
    "every",
    "calm_settings",
)
_WHERE = Path(".longshore/chaos")


def _count(flag: str, least: int, default: int, what: str) -> Callable[[Command], Command]:
    text = f"How many {what} ({default})."
    return click.option(flag, type=Whole(least), default=default, metavar="N", help=text)


@click.command(
    short_help="Break real processes, and see that promises hold.",
    epilog=examples(
        "longshore chaos",
        "longshore chaos --minutes 5 --seed 42",
        "longshore chaos --seconds 30 --store sqlite --workers 1",
        "longshore chaos --minutes 10 --store patroni",
        "longshore chaos --store postgresql://user@127.0.0.1/empty --json",
    ),
)
@click.option("--minutes", metavar="N", help="How long things are broken (1).")
@click.option("--seconds", metavar="N", help="The same in seconds.")
@click.option("--seed", type=Whole(0), metavar="N", help="What is broken when (any).")
@click.option(
    "--store",
    default="",
    metavar="URL",
    help="sqlite; patroni, a cluster of PostgreSQL whose failovers are what is tried; haproxy, the "
    "same behind an haproxy; or the URL of an empty PostgreSQL database, which is not broken "
    "itself (a PostgreSQL of its own if it is installed, else SQLite).",
)
@click.option("--folder", metavar="DIR", help=f"Where runs leave their folders ({_WHERE}).")
@_count("--dispatchers", 1, 2, "dispatchers")
@_count("--workers", 1, 2, "workers of the full dialogue")
@_count("--plain-workers", 0, 1, "workers of the plain dialogue")
@_count("--web-workers", 0, 1, "web workers")
@_count("--gateways", 0, 1, "gateways")
@_count("--clients", 1, 3, "clients; the last one speaks HTTP")
@click.option("--rate", type=float, default=8.0, metavar="N", help="Calls a second in all (8).")
@click.option("--every", metavar="S", help="One fault in so many seconds (2; of a cluster 40).")
@click.option(
    "--calm-settings", is_flag=True, help="Use the usual settings, not leases of 3 s and the like."
)
@json_option
def chaos(as_json: bool, **given: Any) -> int:
    """Run real processes, kill, freeze, cut and fill them, and judge what they did.

    Dispatchers, gateways and workers run on this machine, over loopback alone, and so does a
    PostgreSQL of its own. Clients submit work of every sort meanwhile. Then the faults stop, all
    must come to its end, and a checker judges the history by the promises in docs/guarantees.md.
    The exit code is 0 only if nothing was lost or doubled and everything came to its end.
    """
    # A run needs nearly all of Longshore: only this command pays for that.
    from longshore.testing.chaos.checker import judge
    from longshore.testing.chaos.page import html
    from longshore.testing.chaos.report import Report, show
    from longshore.testing.chaos.run import run

    wanted = _wanted(given)
    began = time.monotonic()

    def told(words: str) -> None:
        if words and not as_json:
            print_text(f"{time.monotonic() - began:6.1f} s  {words}")

    if not as_json:
        print_text(f"seed {wanted.seed}; the history goes to {wanted.folder}")
    with _ended_by_sigterm():
        outcome = run(wanted, told)
    report = Report(
        seed=wanted.seed,
        store=outcome.store,
        seconds=wanted.seconds,
        folder=str(wanted.folder),
        shape=_shape(wanted),
        verdict=judge(outcome.events),
        left_out=outcome.left_out,
        again=_again(wanted, given),
    )
    page = wanted.folder / "report.html"
    page.write_text(html(report))
    (wanted.folder / "report.json").write_text(json_line(report.as_json()) + "\n")
    if as_json:
        print_text(json_line(report.as_json()))
    else:
        from rich.console import Console

        show(report, Console(), page)
    return 0 if report.verdict.is_kept else BROKEN


def _wanted(given: dict[str, Any]) -> Wanted:
    from longshore.testing.chaos.fleet import Sizes
    from longshore.testing.chaos.run import Wanted, new_folder

    if given["minutes"] is not None and given["seconds"] is not None:
        raise click.UsageError("give --minutes or --seconds, not both")
    if given["rate"] <= 0:
        raise click.BadParameter("give more than 0 calls a second", param_hint="'--rate'")
    minutes = duration(f"{given['minutes'] or 1}m") if given["seconds"] is None else 0.0
    seconds = minutes or duration(given["seconds"], 1.0)
    seed = given["seed"] if given["seed"] is not None else random.SystemRandom().randrange(10**6)
    return Wanted(
        folder=new_folder(Path(given["folder"] or _WHERE), seed),
        seed=seed,
        seconds=seconds,
        store=given["store"],
        sizes=Sizes(
            given["dispatchers"],
            given["workers"],
            given["gateways"],
            given["plain_workers"],
            given["web_workers"] if given["gateways"] else 0,
            given["clients"],
        ),
        rate=given["rate"],
        every_s=duration(given["every"], 0.05) if given["every"] else 0.0,
        calm_settings=given["calm_settings"],
    )


def _shape(wanted: Wanted) -> str:
    sizes = wanted.sizes
    many = {
        "dispatchers": sizes.dispatchers,
        "workers": sizes.workers,
        "plain workers": sizes.plain,
        "web workers": sizes.web,
        "gateways": sizes.gateways,
        "clients": sizes.clients,
    }
    return ", ".join(f"{n} {name}" for name, n in many.items())


def _again(wanted: Wanted, given: dict[str, Any]) -> str:
    """The command of this run, with what was not left to itself."""
    words = ["longshore chaos", f"--seed {wanted.seed}", f"--seconds {wanted.seconds:g}"]
    context = click.get_current_context()
    for name in _SHAPING:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            words.append(flag if given[name] is True else f"{flag} {given[name]}")
    if given["store"]:
        words.append(f"--store {'URL' if '://' in given['store'] else given['store']}")
    return " ".join(words)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: all that it started ends first."""

    def interrupt(*_: object) -> None:
        note("chaos: ends all that it started")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
