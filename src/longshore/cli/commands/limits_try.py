"""`longshore limits try`: who would wait for what under rules that are not live yet."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from longshore.cli.options import ask
from longshore.cli.trial_input import read_rules, read_trace, trace_of_store
from longshore.cli.view.show import Table, View, print_json, print_view
from longshore.client.jsonable import plain
from longshore.core.timing import span
from longshore.testing.rehearsal import MOST_ARRIVALS, Fleet, rehearse
from longshore.testing.rehearsed import FairTrial, KeyTrial, RuleTrial, Trial, Waits, trial_of

MOST_KEYS_SHOWN = 20
_FAIR_HEADS = ("jobs", "for slots", "p50", "p95", "max")
_HEADS = ("jobs", "waited", "p50", "p95", "max", "used", "longest queue")


def try_rules(context: click.Context, file: str, given: dict[str, Any]) -> None:
    """Lets the jobs of a trace come under the rules of a file, and prints what becomes of them."""
    if (given["arrivals"] is None) == (given["from_store"] is None):
        raise click.UsageError("give a trace: --arrivals FILE, or --from-store SINCE", context)
    rules, most = read_rules(file), given["max_arrivals"] or MOST_ARRIVALS
    since = given["from_store"]
    if since is None:
        arrivals = read_trace(given["arrivals"])
    else:
        arrivals = ask(context, lambda connection: trace_of_store(connection, since, most))
    fleet = Fleet(given["workers"] or 1, given["slots"] or Fleet().slots)
    trial = trial_of(rehearse(rules, arrivals, fleet, most), rules)
    if given["as_json"]:
        print_json(plain(trial))
    else:
        print_view(_view(trial))


def _view(trial: Trial) -> View:
    words = f"{trial.jobs:,} jobs in {span(trial.took_s)}; {_for_slots(trial.slots)}"
    if trial.never:
        words += f"; {trial.never:,} never began"
    keys = [_key_row(one) for one in trial.keys[:MOST_KEYS_SHOWN]]
    rules = [_rule_row(one) for one in trial.rules]
    parts: list[Text | Table] = [
        Text(words),
        Table(("rule", "keys", *_HEADS), rules, frozenset(("keys", *_HEADS))),
        Table(("key", "rule", *_HEADS), keys, frozenset(_HEADS)),
    ]
    if len(trial.keys) > MOST_KEYS_SHOWN:
        parts.append(Text(f"and {len(trial.keys) - MOST_KEYS_SHOWN:,} more keys: --json has all"))
    if trial.fair:
        fair = [_fair_row(one) for one in trial.fair[:MOST_KEYS_SHOWN]]
        parts.append(Table(("fair key", "weight", *_FAIR_HEADS), fair, frozenset(_FAIR_HEADS)))
    return View(parts)


def _fair_row(one: FairTrial) -> tuple[str, ...]:
    waits = one.waits
    times = (span(waits.p50_s), span(waits.p95_s), span(waits.max_s))
    return one.key, f"{one.weight:g}", f"{waits.jobs:,}", f"{waits.share:.0%}", *times


def _for_slots(waits: Waits) -> str:
    if not waits.max_s:
        return "none waited for a free slot"
    return f"{waits.share:.0%} waited for a free slot, {span(waits.max_s)} at most"


def _key_row(one: KeyTrial) -> tuple[str, ...]:
    return one.key, one.rule or "none", *_cells(one)


def _rule_row(one: RuleTrial) -> tuple[str, ...]:
    return one.rule, f"{one.keys:,}", *_cells(one)


def _cells(one: KeyTrial | RuleTrial) -> tuple[str, ...]:
    waits = one.waits
    times = [span(waits.p50_s), span(waits.p95_s), span(waits.max_s)]
    if one.never:
        times[2] = f"{one.never:,} for ever"
    used = "" if one.used is None else f"{one.used:.0%}"
    return f"{waits.jobs:,}", f"{waits.share:.0%}", *times, used, f"{one.longest:,}"
