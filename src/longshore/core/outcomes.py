"""What the end of a program means: one table, and the rules that a job may add to it.

    exit 0                       success
    another exit code            a failure: it uses up an attempt
    85                           goes on later (a snooze), with what it saved: `core.checkpoints`
    a signal                     a crash: after `crash_limit` of them the job is poisonous
    out of memory, no output     failures
    no image, no input           failures for good: another attempt would not find them either
    pull failed, transfer failed,
    disk full, engine gone       losses of the machinery: tried again later, at no cost

A rule of the job comes before the table: `exit(75): retry(5)`. A loss of the whole worker never
comes here: a dispatcher counts it as a crash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import structs

from longshore.core.checkpoints import MAX_IDLE, idle_words, pause_s
from longshore.errors import InvalidInput
from longshore.model.attempt import Assignment
from longshore.model.checkpoint import CheckpointView
from longshore.model.job import JobError, Reason
from longshore.model.program import (
    CHECKPOINT_CODE,
    Action,
    Limits,
    Outcome,
    ProgramEnd,
    PublishOn,
    Rule,
)
from longshore.model.reports import (
    CrashReport,
    FailureReport,
    Report,
    SkipReport,
    SnoozeReport,
)

E = TypeVar("E", Outcome, Action)

MAX_RULES: Final = 20
MAX_RULE_RETRIES: Final = 1_000
FREE_BACKOFF_S: Final = 5.0
MAX_FREE_BACKOFF_S: Final = 300.0


class Row(NamedTuple):
    """What an outcome means if no rule of the job says otherwise."""

    reason: Reason
    free: bool = False
    """It is the machinery's fault: tried again later, at no cost."""
    final: bool = False
    """Another attempt would end in the same way."""
    crash: bool = False


TABLE: Final[dict[Outcome, Row]] = {
    Outcome.EXIT: Row(Reason.EXITED),
    Outcome.SIGNAL: Row(Reason.CRASHED, crash=True),
    Outcome.OUT_OF_MEMORY: Row(Reason.OUT_OF_MEMORY),
    Outcome.TIMED_OUT: Row(Reason.TIMED_OUT),
    Outcome.NOT_STARTED: Row(Reason.NOT_STARTED, final=True),
    Outcome.IMAGE_MISSING: Row(Reason.IMAGE_MISSING, final=True),
    Outcome.PULL_FAILED: Row(Reason.PULL_FAILED, free=True),
    Outcome.INPUT_MISSING: Row(Reason.INPUT_MISSING, final=True),
    Outcome.OUTPUT_MISSING: Row(Reason.OUTPUT_MISSING),
    Outcome.OUTPUT_REFUSED: Row(Reason.OUTPUT_REFUSED, final=True),
    Outcome.TRANSFER_FAILED: Row(Reason.TRANSFER_FAILED, free=True),
    Outcome.DISK_FULL: Row(Reason.DISK_FULL, free=True),
    Outcome.ENGINE_GONE: Row(Reason.ENGINE_GONE, free=True),
    Outcome.WORKER_LOST: Row(Reason.CRASHED, crash=True),
}


OF_PROGRAMS: Final = frozenset(row.reason for row in TABLE.values()) - {
    Reason.TIMED_OUT,
    Reason.CRASHED,
}
"""The reasons that only programs have. Their errors tell what was printed last."""


def goes_on(end: ProgramEnd, rules: Sequence[Rule], saved: CheckpointView | None = None) -> bool:
    """Whether a program has ended only to go on later, with what it has saved.

    Not if a rule of the job says otherwise, nor if it does not get on.
    """
    asks = end.outcome is Outcome.EXIT and end.number == CHECKPOINT_CODE
    is_idle = saved is not None and saved.idle >= MAX_IDLE
    return asks and not is_idle and not any(_fits(rule, end) for rule in rules)


def wanted_outputs(
    end: ProgramEnd, rules: Sequence[Rule], saved: CheckpointView | None = None
) -> frozenset[PublishOn]:
    """Which outputs the end of an attempt brings: they count if its job ends for good with it.

    A skip is no failure, and what the machinery lost is tried again.
    """
    if end.is_success:
        return frozenset({PublishOn.SUCCESS, PublishOn.ALWAYS})
    if goes_on(end, rules, saved):
        return frozenset()
    rule = _rule_for(end, rules)
    if rule is not None and rule.action is Action.SKIP:
        return frozenset({PublishOn.ALWAYS})
    is_free = TABLE[end.outcome].free if rule is None else rule.action is Action.RETRY_FREE
    return frozenset() if is_free else frozenset({PublishOn.FAILURE, PublishOn.ALWAYS})


def report_of(
    assignment: Assignment,
    end: ProgramEnd,
    rules: Sequence[Rule],
    last_lines: str = "",
    saved: CheckpointView | None = None,
) -> Report | None:
    """How a worker reports an end that is no success; None if it is one.

    `last_lines` is what the program printed last: it goes into the error. `saved` is the checkpoint
    that the end has left.
    """
    if end.is_success:
        return None
    if goes_on(end, rules, saved):
        return _later(assignment, saved)
    if saved is not None and goes_on(end, rules):
        end = structs.replace(end, words=f"{end.words}; {idle_words(saved)}")
    rule = _rule_for(end, rules)
    row = TABLE[end.outcome]
    number = end.number if end.outcome is Outcome.EXIT else None
    error = JobError(row.reason, end.words, traceback=last_lines, exit_code=number)
    if rule is None:
        return _by_table(assignment, row, error)
    return _by_rule(assignment, rule, error)


def _later(assignment: Assignment, saved: CheckpointView | None) -> SnoozeReport:
    """Of a program without a checkpoint nobody knows whether it gets on: it waits ever longer."""
    if saved is None:
        after_s = pause_s(assignment.attempt - 1)
        return SnoozeReport(*assignment.key, after_s, note="it asked to go on later")
    note = f"it goes on later, from its checkpoint ({saved.files:,} files)"
    return SnoozeReport(*assignment.key, pause_s(saved.idle), note=note)


def _by_table(assignment: Assignment, row: Row, error: JobError) -> Report:
    if row.free:
        return _free(assignment, error)
    if row.crash:
        return CrashReport(*assignment.key, error=error)
    return FailureReport(*assignment.key, error=error, final=row.final)


def _by_rule(assignment: Assignment, rule: Rule, error: JobError) -> Report:
    match rule.action:
        case Action.RETRY:
            return FailureReport(*assignment.key, error=error, most_attempts=rule.most + 1)
        case Action.RETRY_FREE:
            return _free(assignment, error)
        case Action.FAIL:
            return FailureReport(*assignment.key, error=error, final=True)
        case Action.SKIP:
            return SkipReport(*assignment.key, note=error.message)


def _free(assignment: Assignment, error: JobError) -> SnoozeReport:
    grown = FREE_BACKOFF_S * 2 ** min(max(assignment.attempt, 1) - 1, 16)
    note = f"not the job's fault ({error.reason}): {error.message}"
    return SnoozeReport(*assignment.key, after_s=min(grown, MAX_FREE_BACKOFF_S), note=note)


def _rule_for(end: ProgramEnd, rules: Sequence[Rule]) -> Rule | None:
    return next((rule for rule in rules if _fits(rule, end)), None)


def _fits(rule: Rule, end: ProgramEnd) -> bool:
    return rule.outcome is end.outcome and (not rule.codes or end.number in rule.codes)


def memory_for(limits: Limits, rules: Sequence[Rule], failures: int) -> int | None:
    """How much memory an attempt may use, after so many failures."""
    rule = next((r for r in rules if r.outcome is Outcome.OUT_OF_MEMORY), None)
    if limits.memory_bytes is None or rule is None:
        return limits.memory_bytes
    grown = int(limits.memory_bytes * rule.memory_factor ** min(failures, 64))
    return grown if rule.memory_most_bytes is None else min(grown, rule.memory_most_bytes)


# rules as text: "exit(75): retry(5)", "oom: retry(3, memory=x2, most=8g)"

_RULE: Final = re.compile(
    r"\s*(?P<outcome>[a-z_]+)\s*(?:\((?P<codes>[\d,\s]*)\))?\s*:\s*"
    r"(?P<action>[a-z_]+)\s*(?:\((?P<options>[^()]*)\))?\s*"
)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_NUMBERED: Final = (Outcome.EXIT, Outcome.SIGNAL)
_EXAMPLE: Final = "write a rule like 'exit(75): retry(5)' or 'oom: retry(3, memory=x2, most=8g)'"


def parse_rule(text: str) -> Rule:
    """The rule that a text means; raises `InvalidInput` that says what is wrong with it."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidInput(f"rule {text!r:.100} is none; {_EXAMPLE}")
    outcome = _named(Outcome, found["outcome"], "end", text)
    action = _named(Action, found["action"], "action", text)
    if found["codes"] is not None and outcome not in _NUMBERED:
        raise InvalidInput(f"rule {text!r:.100}: only exit and signal have numbers in brackets")
    codes = tuple(int(code) for code in (found["codes"] or "").split(",") if code.strip())
    if action is not Action.RETRY and found["options"]:
        raise InvalidInput(f"rule {text!r:.100}: only retry has something in brackets")
    most, factor, most_bytes = _retry_options(found["options"] or "", text)
    rule = Rule(outcome, codes, action, most, factor, most_bytes)
    check_rule(rule)
    return rule


def _named(of: type[E], name: str, what: str, text: str) -> E:
    try:
        return of(name)
    except ValueError:
        there = ", ".join(of)
        raise InvalidInput(
            f"rule {text!r:.100}: {what} '{name}' is unknown; there are {there}"
        ) from None


def _retry_options(options: str, text: str) -> tuple[int, float, int | None]:
    most, factor, most_bytes = 1, 1.0, None
    for option in filter(None, (part.strip() for part in options.split(","))):
        name, given, value = (part.strip() for part in option.partition("="))
        try:
            if not given:
                most = int(name)
            elif name == "memory":
                factor = float(value.removeprefix("x"))
            elif name == "most":
                most_bytes = parse_size(value)
            else:
                raise ValueError
        except (ValueError, InvalidInput):
            raise InvalidInput(f"rule {text!r:.100}: {option!r} is unknown; {_EXAMPLE}") from None
    return most, factor, most_bytes


def parse_size(text: str) -> int:
    """How many bytes a text like 512m or 8g means; raises `InvalidInput`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{text!r:.50} is no size; write it like 512m or 8g")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def check_rule(rule: Rule) -> None:
    """Raises `InvalidInput` if a rule makes no sense."""
    about = f"a rule about {rule.outcome}"
    wrong = next((code for code in rule.codes if not 1 <= code <= 255), None)
    if wrong is not None:
        raise InvalidInput(f"{about} names {wrong}, which no failure has; 1 to 255 are possible")
    if rule.outcome is Outcome.WORKER_LOST and rule.action is not Action.RETRY_FREE:
        raise InvalidInput(f"{about} may only say retry_free: nobody is there to do anything else")
    if not 0 <= rule.most <= MAX_RULE_RETRIES:
        raise InvalidInput(
            f"{about} allows {rule.most:,} retries; 0 to {MAX_RULE_RETRIES:,} are possible"
        )
    if not 1.0 <= rule.memory_factor <= 64.0:
        raise InvalidInput(
            f"{about} gives {rule.memory_factor:g} times the memory; 1 to 64 are possible"
        )
    if rule.memory_factor != 1.0 and rule.outcome is not Outcome.OUT_OF_MEMORY:
        raise InvalidInput(f"{about} gives more memory, which only helps against oom")
