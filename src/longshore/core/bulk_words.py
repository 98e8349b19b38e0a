"""Bulks and their plans in words, for commands and pages."""

from __future__ import annotations

from collections.abc import Iterable

from longshore.core.bulks import action_words
from longshore.model.bulk import BulkPlan, BulkRun, NewBulk, Refusal


def plan_lines(new: NewBulk, plan: BulkPlan) -> list[str]:
    """What a bulk would do: how many match, in which states, and who is left as it is."""
    more = "" if plan.go_on is None else "at least "
    states = ", ".join(f"{n:,} {state.value}" for state, n in sorted(plan.states.items()))
    first = f"{more}{jobs_words(plan.matched)} match" + ("es" if plan.matched == 1 else "")
    lines = [first + (f": {states}" if states else "")]
    if plan.refused:
        lines.append(f"{action_words(new)} can be done to {more}{plan.would:,} of them")
    return [*lines, *refusal_lines(plan.refused)]


def progress_words(bulk: BulkRun) -> str:
    """What a bulk did so far."""
    of = f" of {bulk.new.expected:,} counted before" if bulk.new.expected else ""
    left = bulk.matched - bulk.done
    refused = f", {left:,} left as they were" if left else ""
    return f"{bulk.state.value}: {bulk.done:,} done{refused}{of}"


def refusal_lines(refused: Iterable[Refusal]) -> list[str]:
    """Who was left as it was, and why: a line for each reason."""
    return [f"left as they are, {one.count:,}: each {one.why} (job {_few(one)})" for one in refused]


def _few(one: Refusal) -> str:
    more = ", …" if one.count > len(one.examples) else ""
    return ", ".join(map(str, one.examples)) + more


def jobs_words(count: int) -> str:
    """So many jobs, in words."""
    return f"{count:,} job{'' if count == 1 else 's'}"
