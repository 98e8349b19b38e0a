"""`longshore limits`: lists, sets and removes rules of limits, and shows keys."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Whole, ask, client_options, examples
from longshore.cli.view.show import Table, View, print_answer, print_json, print_view
from longshore.client.jsonable import plain
from longshore.core.key_limits import MOST_UNITS
from longshore.core.key_words import bounds_words, key_words
from longshore.core.rates import parse_rate, rate_text
from longshore.model.limits import LimitRule

_NUMBER = Whole(0, MOST_UNITS)
_BOUNDS = ("concurrency", "rate", "burst", "weight")


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
    ),
)
@click.argument(
    "action",
    type=click.Choice(["ls", "set", "show", "rm"]),
    metavar="[set|show|rm]",
    default="ls",
)
@click.argument("pattern", required=False, metavar="[KEY]")
@click.option("--concurrency", type=_NUMBER, metavar="N", help="The most jobs at once.")
@click.option("--rate", metavar="N/TIME", help="The most in a time: 100/min, 5/s, 10/30s.")
@click.option("--burst", type=Whole(1, MOST_UNITS), metavar="N", help="More than that at once (1).")
@click.option("--weight", type=float, metavar="W", help="The share of jobs with this fair_by (1).")
@client_options
def limits(context: click.Context, /, action: str, pattern: str | None, **given: Any) -> None:
    """List rules of limits, set or remove one, show a key.

    A rule is about a key, such as tenant=acme, or about all keys that begin as its pattern does:
    tenant=* or tenant=ac*. The most specific rule wins. It goes before what jobs bring, and holds
    at once for jobs that wait. A rule for kind=NAME or queue=NAME holds for all jobs of that kind
    or queue, whatever keys they name. A weight is for jobs with fair_by: keys share
    workers by it.

    Exits with 3 if there is no rule to remove.
    """
    if action == "ls":
        _list(context, given)
        return
    if pattern is None:
        raise click.UsageError("name the key, such as tenant=acme", context)
    if action != "set" and any(given[name] is not None for name in _BOUNDS):
        raise click.UsageError("--concurrency, --rate, --burst and --weight go with set", context)
    if action == "set":
        _set(context, pattern, given)
    elif action == "show":
        view = ask(context, lambda connection: connection.limits.key(pattern))
        print_answer(given["as_json"], plain(view), key_words(view))
    else:
        ask(context, lambda connection: connection.limits.remove(pattern))
        print_answer(given["as_json"], {"removed": pattern}, f"the rule for {pattern} is removed")


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
