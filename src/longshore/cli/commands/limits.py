"""`longshore limits`: lists, sets and removes rules of limits, and shows keys."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.commands.limits_try import try_rules
from longshore.cli.options import Whole, ask, client_options, examples, since
from longshore.cli.view.show import Table, View, print_answer, print_json, print_view
from longshore.client.jsonable import plain
from longshore.core.key_limits import MOST_UNITS
from longshore.core.key_words import bounds_words, key_words
from longshore.core.rates import parse_rate, rate_text
from longshore.model.limits import LimitRule

_NUMBER = Whole(0, MOST_UNITS)
_BOUNDS = ("concurrency", "rate", "burst", "weight")
_OF_TRY = ("arrivals", "from_store", "workers", "slots", "max_arrivals")


@click.command(
    name="limits",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "longshore limits",
        "longshore limits set tenant=* --concurrency 5 --rate 100/min --burst 20",
        "longshore limits set queue=mail --concurrency 10",
        "longshore limits set tenant=acme --weight 2",
        "longshore limits show tenant=acme",
        "longshore limits rm tenant=acme",
        "longshore limits try rules.toml --arrivals trace.csv --workers 4 --slots 25",
    ),
)
@click.argument(
    "action",
    type=click.Choice(["ls", "set", "show", "rm", "try"]),
    metavar="[set|show|rm|try]",
    default="ls",
)
@click.argument("pattern", required=False, metavar="[KEY|FILE]")
@click.option("--concurrency", type=_NUMBER, metavar="N", help="The most jobs at once.")
@click.option("--rate", metavar="N/TIME", help="The most in a time: 100/min, 5/s, 10/30s.")
@click.option("--burst", type=Whole(1, MOST_UNITS), metavar="N", help="More than that at once (1).")
@click.option("--weight", type=float, metavar="W", help="The share of jobs with this fair_by (1).")
@click.option("--arrivals", metavar="CSV", help="With try: the jobs, with at_s, run_s and keys.")
@click.option(
    "--from-store",
    metavar="SINCE",
    type=since,
    help="With try: the jobs that came since then (2h, or a time) and have run.",
)
@click.option("--workers", type=Whole(1, 1000), metavar="N", help="With try: so many workers (1).")
@click.option(
    "--slots", type=Whole(1, 10_000), metavar="N", help="With try: slots of each worker (100)."
)
@click.option(
    "--max-arrivals",
    type=Whole(1, 100_000),
    metavar="N",
    help="With try: the most jobs (10,000).",
)
@client_options
def limits(context: click.Context, /, action: str, pattern: str | None, **given: Any) -> None:
    """List rules of limits, set, remove or try some, show a key.

    A rule is about a key, such as tenant=acme, or about all keys that begin as its pattern does:
    tenant=* or tenant=ac*. The most specific rule wins. It goes before what jobs bring, and holds
    at once for jobs that wait. A rule for kind=NAME or queue=NAME holds for all jobs of that kind
    or queue, whatever keys they name. A weight is for jobs with fair_by: keys share
    workers by it.

    With try, the jobs of a trace come under the rules of a TOML file, on a clock that jumps: who
    would wait for what, before the rules go live. It changes nothing.

    Exits with 3 if there is no rule to remove.
    """
    if action == "ls":
        _refuse_strangers(context, action, given)
        _list(context, given)
        return
    if pattern is None:
        what = "the file of the rules" if action == "try" else "the key, such as tenant=acme"
        raise click.UsageError(f"name {what}", context)
    _refuse_strangers(context, action, given)
    if action != "set" and any(given[name] is not None for name in _BOUNDS):
        raise click.UsageError("--concurrency, --rate, --burst and --weight go with set", context)
    if action == "try":
        try_rules(context, pattern, given)
    elif action == "set":
        _set(context, pattern, given)
    elif action == "show":
        view = ask(context, lambda connection: connection.limits.key(pattern))
        print_answer(given["as_json"], plain(view), key_words(view))
    else:
        ask(context, lambda connection: connection.limits.remove(pattern))
        print_answer(given["as_json"], {"removed": pattern}, f"the rule for {pattern} is removed")


def _refuse_strangers(context: click.Context, action: str, given: dict[str, Any]) -> None:
    """Options of `try` go with nothing else, and those of `set` not with `try`."""
    if action != "try" and any(given[name] is not None for name in _OF_TRY):
        options = ", ".join(f"--{name.replace('_', '-')}" for name in _OF_TRY)
        raise click.UsageError(f"{options} go with try", context)


def _list(context: click.Context, given: dict[str, Any]) -> None:
    rules = ask(context, lambda connection: connection.limits.rules())
    if given["as_json"]:
        print_json([plain(rule) for rule in rules])
    else:
        print_view(View([_table(rules)], "no rules: what jobs bring holds"))


def _set(context: click.Context, pattern: str, given: dict[str, Any]) -> None:
    if given["burst"] is not None and given["rate"] is None:
        raise click.UsageError("--burst goes with --rate", context)
    rate = None if given["rate"] is None else parse_rate(given["rate"], given["burst"] or 1)
    most, weight = given["concurrency"], given["weight"]
    ask(context, lambda connection: connection.limits.set(pattern, most, rate, weight))
    document = plain(LimitRule(pattern, most, rate, weight=weight))
    words = f"{pattern}: {bounds_words(most, rate, weight)}"
    print_answer(given["as_json"], document, words)


def _table(rules: tuple[LimitRule, ...]) -> Table:
    rows = [
        (
            rule.pattern,
            "" if rule.concurrency is None else str(rule.concurrency),
            "" if rule.rate is None else rate_text(rule.rate),
            "" if rule.rate is None else str(rule.rate.burst),
            "" if rule.weight is None else f"{rule.weight:g}",
        )
        for rule in rules
    ]
    numbers = frozenset({"at once", "burst", "weight"})
    return Table(("key", "at once", "rate", "burst", "weight"), rows, numbers)
