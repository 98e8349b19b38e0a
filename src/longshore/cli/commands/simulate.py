"""`longshore simulate`: runs whole clusters on virtual time, with faults chosen by seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from longshore.cli.options import Whole, examples, json_option
from longshore.cli.view.show import json_line, print_text

if TYPE_CHECKING:
    from longshore.testing.simulation.run import Verdict

BROKEN = 1


@click.command(
    short_help="Run clusters on virtual time, through faults.",
    epilog=examples(
        "longshore simulate",
        "longshore simulate --from 1000 --seeds 5000",
        "longshore simulate --seed 42",
        "longshore simulate --store sqlite",
    ),
)
@click.option("--seed", type=Whole(0), metavar="N", help="Run only this seed.")
@click.option("--seeds", type=Whole(1), default=100, metavar="COUNT", help="How many seeds (100).")
@click.option("--from", "first", type=Whole(0), default=1, metavar="N", help="The first seed (1).")
@click.option(
    "--store",
    type=click.Choice(["model", "sqlite"]),
    help="The store of the cluster: the model in memory, or SQLite (SQLite for every fourth seed).",
)
@click.option(
    "--scenario",
    "scenario_name",
    metavar="NAME",
    help="What each seed is: jobs, rush, expiry, groups, growth, gates, reruns, actors, web, "
    "limits or schedules (four seeds each, in turn).",
)
@click.option("--verbose", is_flag=True, help="Print every event.")
@json_option
def simulate(
    seed: int | None,
    seeds: int,
    first: int,
    store: str | None,
    scenario_name: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run clusters in this process, on virtual time, through crashes, cuts and outages.

    A seed is a scenario: dispatchers, workers, jobs or groups, and what goes wrong when. A seed
    always gives the same run, to the byte. The command stops at the first broken promise, and tells
    the story of its job.
    """
    # The simulation imports nearly all of Longshore: only this command pays for that.
    from longshore.testing.simulation import run
    from longshore.testing.simulation.scenario import SCENARIOS, scenario_of

    if scenario_name is not None and scenario_name not in SCENARIOS:
        raise click.BadParameter(f"give one of {', '.join(SCENARIOS)}", param_hint="'--scenario'")
    faults = 0
    for one in [seed] if seed is not None else range(first, first + seeds):
        on_sqlite = store == "sqlite" if store is not None else run.is_for_sqlite(one)
        what = scenario_name or scenario_of(one)
        verdict = (run.simulate_on_sqlite if on_sqlite else run.simulate)(SCENARIOS[what](one))
        if verbose:
            for line in verdict.trace.lines():
                print_text(line)
        named = what, "sqlite" if on_sqlite else "model"
        print_text(json_line(_facts(verdict, *named)) if as_json else _summary(verdict, *named))
        if verdict.broken is not None:
            if not as_json:
                _tell(verdict, *named)
            return BROKEN
        faults += verdict.faults
    if seed is None and not as_json:
        print_text(f"{seeds:,} seeds kept all promises through {faults:,} faults")
    return 0


def _facts(verdict: Verdict, what: str, store: str) -> dict[str, object]:
    return {
        "seed": verdict.scenario.seed,
        "scenario": what,
        "store": store,
        "broken": None if verdict.broken is None else str(verdict.broken),
        "simulated_s": verdict.seconds,
        "steps": verdict.steps,
        "faults": verdict.faults,
        "trace": verdict.trace.digest(),
    }


def _summary(verdict: Verdict, what: str, store: str) -> str:
    scenario = verdict.scenario
    ending = "kept" if verdict.broken is None else "BROKEN"
    took = f"{verdict.seconds:,.0f} s on {store} in {verdict.steps:,} steps"
    trace = verdict.trace.digest()
    return f"seed {scenario.seed}: {ending}  {what}: {scenario.words}, {took}, trace {trace}"


def _tell(verdict: Verdict, what: str, store: str) -> None:
    broken = verdict.broken
    assert broken is not None
    print_text(f"\nbroken: {broken}")
    if broken.job is not None:
        story = "\n".join(verdict.trace.story(broken.job))
        print_text(f"\nthe story of {verdict.trace.name(broken.job)} ({broken.job}):\n\n{story}")
    seed = verdict.scenario.seed
    again = f"longshore simulate --seed {seed} --scenario {what} --store {store}"
    print_text(f"\nto see it again: {again}")
