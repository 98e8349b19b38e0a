"""What a run has shown, in words: for a terminal and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from longshore.testing.chaos.app import AT_ONCE
from longshore.testing.chaos.checker import Recovery, Verdict
from longshore.testing.chaos.rules import RULES

PROMISES = {
    "G1": "accepted is durable",
    "G2": "one owner",
    "G3": "one outcome",
    "G5": "order",
    "G6": "self-stop",
    "G7": "messages",
    "G8": "no special process",
}
"""The promises that a history can show. G4, that a job can say why it waits, is asked of what is
left when a run does not come to rest."""
MOST_BROKEN = 12
MOST_REASONS = 6


class Report(Struct, frozen=True, kw_only=True):
    """A run and its verdict."""

    seed: int
    store: str
    seconds: float
    folder: str
    shape: str
    verdict: Verdict
    left_out: tuple[str, ...]
    again: str
    """The command that breaks the same things again."""

    def as_json(self) -> dict[str, object]:
        """For programs: the numbers, and all that was broken."""
        found: dict[str, object] = msgspec.to_builtins(self)
        verdict = found["verdict"]
        assert isinstance(verdict, dict)
        del verdict["outcomes_at_s"]
        return {"kept": self.verdict.is_kept, **found}


def show(report: Report, console: Console, page: Path) -> None:
    """Prints it."""
    verdict = report.verdict
    console.print()
    console.print(_struck(verdict))
    console.print(_work(verdict))
    console.print(_rules(verdict))
    for line in notes(report):
        console.print(f"  {line}", highlight=False, markup=False)
    if verdict.broken:
        console.print("\n[bold red]What is broken[/]")
        for one in verdict.broken[:MOST_BROKEN]:
            words = f"  {one.rule} ({one.promise}): {one.subject}: {one.words}"
            console.print(words, highlight=False, markup=False, soft_wrap=True)
        if len(verdict.broken) > MOST_BROKEN:
            console.print(f"  and {len(verdict.broken) - MOST_BROKEN} more: see the page")
    colour = "green" if verdict.is_kept else "red"
    console.print(f"\n[bold {colour}]{headline(report)}[/]", highlight=False)
    for name, value in (("page", page), ("folder", report.folder), ("again", report.again)):
        console.print(f"{name:7} {value}", highlight=False, markup=False, soft_wrap=True)


def headline(report: Report) -> str:
    """All in one line."""
    verdict = report.verdict
    many = f"{verdict.accepted:,} jobs accepted, {verdict.finished:,} finished"
    said = f"{many}, {verdict.messages:,} messages, {len(verdict.recoveries)} faults"
    return f"KEPT: {said}" if verdict.is_kept else f"BROKEN: {said}"


def notes(report: Report) -> Iterator[str]:
    """What is worth a line, and is no fault."""
    verdict = report.verdict
    yield (
        f"{verdict.repeated} jobs had their body run more than once (at most "
        f"{verdict.most_repeated} times): allowed, a worker died or was cut off before it reported"
    )
    if verdict.at_once:
        keys = ", ".join(f"{key} {most}" for key, most in sorted(verdict.at_once.items()))
        yield f"limits let {AT_ONCE} jobs of a key run at once; so many did at most: {keys}"
    if verdict.unheard:
        yield f"{verdict.unheard} jobs were submitted and nobody heard that they were accepted"
    for why, many in Counter(reason_of(e.why) for e in verdict.explained).most_common(MOST_REASONS):
        yield f"{many} times bodies overlapped, which is explained: {why}"
    yield (
        f"the longest time without an outcome: {verdict.longest_stall_s:.1f} s, at "
        f"{verdict.longest_stall_at_s:.0f} s; at rest {verdict.drain_s:.1f} s after the last fault"
    )
    if verdict.store_away_s:
        yield (
            f"the cluster accepted no commit for {verdict.store_away_s:.1f} s at the longest; "
            f"Longshore was away for at most {verdict.late_s:.1f} s more"
        )
    for who, many in verdict.ended.items():
        yield f"{many} times ended by itself and was started again: {who.replace('(', '(code ')}"
    if verdict.hiccups:
        yield f"the machine itself stood still {verdict.hiccups} times"
    for what in report.left_out:
        yield f"left out: {what}"


def reason_of(why: str) -> str:
    """The same words for all workers."""
    first, _, rest = why.partition(" ")
    return f"a worker {rest}" if "." in first else why.split(" for 0")[0].split(" for 1")[0]


def _struck(verdict: Verdict) -> Table:
    table = Table(title="What was broken", title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("whom")
    for name in ("times", "lasted", "recovered in", "at most"):
        table.add_column(name, justify="right")
    for (deed, sort), some in by_deed(verdict).items():
        table.add_row(deed.replace("_", " "), sort, str(len(some)), *_times(some))
    return table


def by_deed(verdict: Verdict) -> dict[tuple[str, str], list[Recovery]]:
    """The faults by what they are and whom they struck."""
    found: dict[tuple[str, str], list[Recovery]] = {}
    for one in sorted(verdict.recoveries, key=lambda one: (sort_of(one.whom), one.deed)):
        found.setdefault((one.deed, sort_of(one.whom)), []).append(one)
    return found


def sort_of(whom: str) -> str:
    """The sort of a part; a link is between two."""
    ends = whom.split(">")
    return " to ".join(end.split("-")[0] for end in ends)


def _times(some: list[Recovery]) -> tuple[str, str, str]:
    recovered = sorted(one.recovered_s for one in some if one.recovered_s is not None)
    lasted = max(one.lasted_s for one in some)
    if not recovered:
        return f"{lasted:.1f} s", "-", "-"
    middle = recovered[len(recovered) // 2]
    return f"{lasted:.1f} s", f"{middle:.2f} s", f"{recovered[-1]:.2f} s"


def _work(verdict: Verdict) -> Table:
    table = Table(title="What was asked for", title_justify="left", title_style="bold")
    table.add_column("work")
    for name in ("accepted", "finished"):
        table.add_column(name, justify="right")
    for sort, (accepted, finished) in verdict.sorts.items():
        table.add_row(sort, f"{accepted:,}", f"{finished:,}")
    table.add_row("messages", f"{verdict.messages:,}", "")
    table.add_row("nominal times", f"{verdict.nominal_times:,}", "")
    return table


def _rules(verdict: Verdict) -> Table:
    table = Table(title="What was found", title_justify="left", title_style="bold")
    table.add_column("rule")
    table.add_column("promise")
    table.add_column("broken", justify="right")
    for rule, (promise, _) in RULES.items():
        many = verdict.counts[rule]
        said = f"[bold red]{many}[/]" if many else "[green]0[/]"
        table.add_row(rule, f"{promise} {PROMISES[promise]}", said)
    return table
