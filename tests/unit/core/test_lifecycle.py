"""The table of moves, held to what DESIGN promises of a job's life."""

from pathlib import Path
from uuid import UUID

from longshore.core.lifecycle import (
    MEANINGS,
    MOVES,
    RULES,
    TERMINAL,
    Event,
    diagram,
)
from longshore.model.job import JobState

JOB = UUID(int=1)
OWNER = UUID(int=2)


def test_every_state_is_in_the_table() -> None:
    assert set(MEANINGS) == set(JobState)
    assert set(MOVES) == set(JobState)


def test_every_event_has_a_rule() -> None:
    assert set(RULES) == set(Event)


def test_every_state_but_success_can_reach_a_terminal_one() -> None:
    for state in set(JobState) - TERMINAL:
        reached, frontier = {state}, [state]
        while frontier:
            for following in MOVES[frontier.pop()].values():
                if following not in reached:
                    reached.add(following)
                    frontier.append(following)
        assert reached & TERMINAL, f"{state} never ends"


def test_a_terminal_state_is_left_only_by_a_manual_retry() -> None:
    for state in TERMINAL:
        assert set(MOVES[state]) <= {Event.REOPENED, Event.REOPENED_TO_WAIT}


def test_a_success_is_undone_only_by_the_retry_of_a_group() -> None:
    assert set(MOVES[JobState.SUCCEEDED]) == {Event.REOPENED_TO_WAIT}


def test_a_lost_worker_frees_running_jobs_and_ends_cancelling_ones() -> None:
    assert MOVES[JobState.RUNNING][Event.LOST] is JobState.READY
    assert MOVES[JobState.CANCELLING][Event.LOST] is JobState.CANCELLED


def test_a_late_event_changes_nothing() -> None:
    assert Event.LOST not in MOVES[JobState.SUCCEEDED]
    assert Event.SUCCEEDED not in MOVES[JobState.READY]


def test_the_diagram_in_the_docs_is_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "states.md"
    assert f"```mermaid\n{diagram()}```" in page.read_text()
