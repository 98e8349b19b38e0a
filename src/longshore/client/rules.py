"""Rules in code: what the ends of commands and containers mean.

    on=[longshore.exit(75).retry(5), longshore.oom.retry(3, memory="x2", most="8g")]

As text, the same rules are "exit(75): retry(5)" and "oom: retry(3, memory=x2, most=8g)".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from longshore.core.outcomes import check_rule, parse_rule, parse_size
from longshore.errors import InvalidInput
from longshore.model.program import Action, Outcome, Rule

RulesGiven = Rule | str | Iterable[Rule | str]
"""A rule, as text or as `exit(75).retry(5)` makes it, or several."""


class Ending:
    """A way in which a program can end, for which a rule is made."""

    def __init__(self, outcome: Outcome, codes: tuple[int, ...] = ()) -> None:
        self._outcome = outcome
        self._codes = codes

    def __repr__(self) -> str:
        codes = f"({', '.join(map(str, self._codes))})" if self._codes else ""
        return f"<Ending {self._outcome}{codes}>"

    def retry(
        self,
        times: int = 1,
        *,
        memory: str | float | None = None,
        most: str | int | None = None,
    ) -> Rule:
        """It counts as a failure, and is tried again at most so often.

        With each failure the next attempt may use `memory` times as much memory ("x2"), up to
        `most` ("8g").
        """
        factor = 1.0 if memory is None else _factor(memory)
        most_bytes = parse_size(most) if isinstance(most, str) else most
        return self._rule(Action.RETRY, times, factor, most_bytes)

    @property
    def retry_free(self) -> Rule:
        """It is tried again later, and costs no attempt."""
        return self._rule(Action.RETRY_FREE)

    @property
    def fail(self) -> Rule:
        """The job fails, whatever attempts are left."""
        return self._rule(Action.FAIL)

    @property
    def skip(self) -> Rule:
        """The job is skipped: there was nothing to do."""
        return self._rule(Action.SKIP)

    def _rule(
        self, action: Action, times: int = 1, factor: float = 1.0, most_bytes: int | None = None
    ) -> Rule:
        rule = Rule(self._outcome, self._codes, action, times, factor, most_bytes)
        check_rule(rule)
        return rule


def exit(*codes: int) -> Ending:
    """The program exits with one of these codes; with any but 0, if none is given."""
    return Ending(Outcome.EXIT, _numbers("exit", codes))


def signal(*numbers: int) -> Ending:
    """The program is killed by one of these signals; by any, if none is given."""
    return Ending(Outcome.SIGNAL, _numbers("signal", numbers))


oom: Final = Ending(Outcome.OUT_OF_MEMORY)
"""The program needs more memory than it may use."""
timed_out: Final = Ending(Outcome.TIMED_OUT)
"""The program takes longer than its timeout, or uses more CPU time than it may."""
output_missing: Final = Ending(Outcome.OUTPUT_MISSING)
"""The program succeeds, but leaves no file for one of the patterns of its outputs."""
lost: Final = Ending(Outcome.WORKER_LOST)
"""The worker is lost while the program runs."""


def rules_of(given: RulesGiven) -> tuple[Rule, ...]:
    """The rules that a user gave; raises `InvalidInput` for anything else."""
    if isinstance(given, str | Rule):
        given = (given,)
    if not isinstance(given, Iterable):
        raise InvalidInput(f"on is {given!r:.100}; give a list of rules, like [exit(75).retry(5)]")
    return tuple(_rule(one) for one in given)


def _rule(given: object) -> Rule:
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        return parse_rule(given)
    advice = "say what it means, like .retry(5)" if isinstance(given, Ending) else "give a rule"
    raise InvalidInput(f"on has {given!r:.100}; {advice}")


def _numbers(what: str, given: tuple[object, ...]) -> tuple[int, ...]:
    for one in given:
        if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one <= 255:
            raise InvalidInput(f"{what}({one!r:.50}): give whole numbers from 0 to 255")
    return tuple(one for one in given if isinstance(one, int))


def _factor(given: str | float) -> float:
    try:
        return float(given.removeprefix("x")) if isinstance(given, str) else float(given)
    except ValueError:
        raise InvalidInput(f"memory is {given!r:.50}; give how many times as much: 'x2'") from None
