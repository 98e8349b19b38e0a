"""The table of moves, held to what DESIGN promises of a job's life."""

from pathlib import Path
from uuid import UUID

from longshore.core.lifecycle import (
    MOVES,
    REACHED,
    TERMINAL,
    Event,
    diagram,
)
from longshore.model.job import JobState

JOB = UUID(int=1)
OWNER = UUID(int=2)


def test_every_state_is_in_the_table() -> None:
    assert set(MOVES) == set(JobState)


def test_every_state_but_success_can_reach_a_terminal_one() -> None:
    for state in set(JobState) - TERMINAL:
        reached, frontier = {state}, [state]
        while frontier:
            for following in MOVES[frontier.pop()].values():
                if following not in reached:
                    reached.add(following)
                    frontier.append(following)
        assert reached & TERMINAL, f"{state} never ends"


def test_every_state_can_be_reached() -> None:
    assert list(REACHED) == list(JobState)


def test_a_terminal_state_is_left_only_by_a_manual_retry() -> None:
    for state in TERMINAL:
        assert set(MOVES[state]) <= {Event.REOPENED}


def test_a_success_is_never_undone() -> None:
    assert MOVES[JobState.SUCCEEDED] == {}


def test_a_lost_worker_frees_running_jobs_and_ends_cancelling_ones() -> None:
    assert MOVES[JobState.RUNNING][Event.LOST] is JobState.READY
    assert MOVES[JobState.CANCELLING][Event.LOST] is JobState.CANCELLED


def test_a_late_event_changes_nothing() -> None:
    assert Event.LOST not in MOVES[JobState.SUCCEEDED]
    assert Event.SUCCEEDED not in MOVES[JobState.READY]


def test_the_diagram_in_the_docs_is_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "states.md"
    assert f"```mermaid\n{diagram()}```" in page.read_text()
