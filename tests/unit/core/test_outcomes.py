"""What the ends of programs mean: each row of the table, and the rules before it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.checkpoints import MAX_IDLE, MAX_PAUSE_S, PAUSE_S
from longshore.core.outcomes import (
    TABLE,
    memory_for,
    parse_rule,
    parse_size,
    report_of,
    wanted_outputs,
)
from longshore.errors import InvalidInput
from longshore.model.attempt import Assignment
from longshore.model.checkpoint import CheckpointView
from longshore.model.job import Reason
from longshore.model.program import Action, Limits, Outcome, ProgramEnd, PublishOn, Rule
from longshore.model.reports import CrashReport, FailureReport, Report, SkipReport, SnoozeReport

ATTEMPT = Assignment(UUID(int=1), 2, 3, "k", b"")
FINAL = ("not_started", "image_missing", "input_missing", "output_refused")
FREE = ("pull_failed", "transfer_failed", "disk_full", "engine_gone")
FAILURES = ("exit", "oom", "timed_out", "output_missing")
CRASHES = ("signal", "lost")


def report(outcome: str, number: int | None = None, *rules: str) -> Report | None:
    """What is reported of an end."""
    end = ProgramEnd(Outcome(outcome), number, "words")
    return report_of(ATTEMPT, end, [parse_rule(rule) for rule in rules], "last")


def test_every_end_has_one_row_and_these_lists_have_all_of_them() -> None:
    assert TABLE.keys() == {*Outcome}
    assert {*FINAL, *FREE, *FAILURES, *CRASHES} == {*Outcome}


def test_exit_code_0_is_a_success() -> None:
    assert report("exit", 0) is None


@pytest.mark.parametrize("outcome", [*FAILURES, *FINAL])
def test_failures_use_up_an_attempt_unless_another_would_end_alike(outcome: str) -> None:
    made = report(outcome, 3 if outcome == "exit" else None)
    assert isinstance(made, FailureReport)
    assert made.final == (outcome in FINAL)
    assert (made.error.message, made.error.traceback) == ("words", "last")
    assert made.error.exit_code == (3 if outcome == "exit" else None)


@pytest.mark.parametrize("outcome", FREE)
def test_losses_of_the_machinery_cost_nothing_and_are_told_apart(outcome: str) -> None:
    made = report(outcome)
    assert isinstance(made, SnoozeReport)
    assert made.note == f"not the job's fault ({TABLE[Outcome(outcome)].reason}): words"
    assert made.after_s > 0


@pytest.mark.parametrize("outcome", CRASHES)
def test_signals_and_lost_workers_are_crashes(outcome: str) -> None:
    made = report(outcome, 9)
    assert isinstance(made, CrashReport)
    assert made.error.reason is Reason.CRASHED


def test_85_goes_on_later_unless_a_rule_says_otherwise() -> None:
    made = report("exit", 85)
    assert isinstance(made, SnoozeReport)
    assert made.after_s == PAUSE_S
    assert isinstance(report("exit", 85, "exit(85): fail"), FailureReport)


def test_85_without_anything_new_waits_ever_longer_and_then_fails() -> None:
    def after(idle: int, *rules: str) -> Report | None:
        saved = CheckpointView(files=2, total_bytes=3, saved_at=datetime.now(UTC), idle=idle)
        end = ProgramEnd(Outcome.EXIT, 85, "exited with code 85")
        return report_of(ATTEMPT, end, [parse_rule(rule) for rule in rules], saved=saved)

    pauses = [made.after_s for n in range(MAX_IDLE) if isinstance(made := after(n), SnoozeReport)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, MAX_PAUSE_S]
    given_up = after(MAX_IDLE)
    assert isinstance(given_up, FailureReport)
    assert not given_up.final, "it uses up its retries"
    assert "10 times in a row with the same files" in given_up.error.message


def test_85_without_a_checkpoint_waits_ever_longer() -> None:
    end = ProgramEnd(Outcome.EXIT, 85)
    made = [report_of(structs.replace(ATTEMPT, attempt=n), end, ()) for n in (1, 2, 30)]
    assert [one.after_s for one in made if isinstance(one, SnoozeReport)] == [1.0, 2.0, MAX_PAUSE_S]


@pytest.mark.parametrize(
    ("outcome", "number", "rules", "wanted"),
    [
        ("exit", 0, (), {"success", "always"}),
        ("exit", 3, (), {"failure", "always"}),
        ("exit", 85, (), set()),
        ("exit", 85, ("exit(85): fail",), {"failure", "always"}),
        ("exit", 3, ("exit(3): skip",), {"always"}),
        ("exit", 3, ("exit(3): retry_free",), set()),
        ("signal", 11, ("signal: skip",), {"always"}),
        ("pull_failed", None, ("pull_failed: fail",), {"failure", "always"}),
        *((outcome, None, (), {"failure", "always"}) for outcome in (*FAILURES, *FINAL, *CRASHES)),
        *((outcome, None, (), set()) for outcome in FREE),
    ],
)
def test_which_outputs_an_end_brings(
    outcome: str, number: int | None, rules: tuple[str, ...], wanted: set[str]
) -> None:
    end = ProgramEnd(Outcome(outcome), number, "words")
    made = wanted_outputs(end, [parse_rule(rule) for rule in rules])
    assert made == {PublishOn(on) for on in wanted}


def test_the_first_rule_that_fits_counts() -> None:
    rules = ("exit(1,2): skip", "exit: retry(4)", "exit(1): fail")
    assert isinstance(report("exit", 1, *rules), SkipReport)
    made = report("exit", 9, *rules)
    assert isinstance(made, FailureReport)
    assert (made.most_attempts, made.final) == (5, False)
    assert isinstance(report("signal", 9, *rules), CrashReport)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("exit(75): retry(5)", Rule(Outcome.EXIT, (75,), Action.RETRY, 5)),
        (" exit ( 1 , 2 ) : fail ", Rule(Outcome.EXIT, (1, 2), Action.FAIL)),
        ("lost: retry_free", Rule(Outcome.WORKER_LOST, (), Action.RETRY_FREE)),
        (
            "oom: retry(3, memory=x2, most=8g)",
            Rule(Outcome.OUT_OF_MEMORY, (), Action.RETRY, 3, 2.0, 8 * 1024**3),
        ),
    ],
)
def test_a_rule_as_text(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 75 retry", "is none; write a rule like"),
        ("quit: retry", "end 'quit' is unknown; there are exit, signal"),
        ("exit: perish", "action 'perish' is unknown; there are retry"),
        ("oom(3): retry", "only exit and signal have numbers in brackets"),
        ("exit(0): fail", "names 0, which no failure has; 1 to 255 are possible"),
        ("exit(1,256): fail", "names 256"),
        ("exit: fail(3)", "only retry has something in brackets"),
        ("exit: retry(3, colour=red)", "'colour=red' is unknown"),
        ("lost: fail", "may only say retry_free"),
        ("exit: retry(1001)", "0 to 1,000 are possible"),
        ("exit: retry(1, memory=x2)", "which only helps against oom"),
        ("oom: retry(1, memory=x100)", "1 to 64 are possible"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rule(text)
    assert words in str(caught.value)


def test_memory_grows_with_each_failure_up_to_a_bound() -> None:
    rules = [parse_rule("oom: retry(9, memory=x2, most=3g)")]
    limits = Limits(memory_bytes=1024**3)
    assert [memory_for(limits, rules, n) for n in (0, 1, 2, 99)] == [
        1024**3,
        2 * 1024**3,
        3 * 1024**3,
        3 * 1024**3,
    ]
    assert memory_for(Limits(), rules, 5) is None


def test_sizes_have_units() -> None:
    assert [parse_size(text) for text in ("1", "2k", "1.5m", "8GiB")] == [
        1,
        2048,
        1_572_864,
        8 * 1024**3,
    ]
