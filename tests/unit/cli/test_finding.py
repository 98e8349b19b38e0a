"""Which jobs are listed, which worker is meant, and what is done when one of several is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher
from tests.unit.cli.test_commands import ID, job
from tests.unit.cli.test_fleet import VIEW

from longshore.cli import finding
from longshore.model.job import CancelVerdict, HistoryEntry, Job, JobState, Options
from longshore.model.worker import QueueView
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]
NOW = datetime.now(UTC)


def paged(jobs: list[Job]) -> object:
    """A dispatcher that has these jobs, newest first, and gives a page of them."""

    def answer(request: m.ListJobs) -> tuple[Job, ...]:
        before = request.wanted.before
        found = [one for one in jobs if before is None or one.number < before]
        return tuple(found[: request.wanted.limit])

    return answer


def numbers(capsys: Captured) -> list[int]:
    return [one["number"] for one in json.loads(capsys.readouterr().out)]


def test_jobs_with_a_label_are_found_however_many_pages_it_takes(
    dispatcher: ScriptedDispatcher, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "PAGE", 2)
    labels = {9: ("red", "big"), 4: ("red",), 1: ("red", "big")}
    dispatcher.answers[m.ListJobs] = paged(
        [job(number=n, options=Options(labels=labels.get(n, ()))) for n in range(9, 0, -1)]
    )
    assert dispatcher.run("jobs", "--label", "red", "--json") == 0
    assert numbers(capsys) == [9, 4, 1]
    assert dispatcher.run("jobs", "--label", "red", "--label", "big", "--json") == 0
    assert numbers(capsys) == [9, 1]
    assert dispatcher.run("jobs", "--label", "red", "--limit", "2", "--json") == 0
    assert numbers(capsys) == [9, 4]


def test_jobs_since_a_time_or_for_so_long(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListJobs] = paged(
        [job(number=9 - hours, created_at=NOW - timedelta(hours=hours)) for hours in range(9)]
    )
    assert dispatcher.run("jobs", "--since", "150m", "--json") == 0
    assert numbers(capsys) == [9, 8, 7]
    since = (NOW - timedelta(hours=1)).isoformat()
    assert dispatcher.run("jobs", "--since", since, "--json") == 0
    assert numbers(capsys) == [9, 8]
    dispatcher.asked.clear()
    assert dispatcher.run("jobs", "--since", "90m", "--limit", "4", "--json") == 0
    assert numbers(capsys) == [9, 8]
    assert len(dispatcher.asked) == 1, "older pages need not be read"


@pytest.mark.parametrize("text", ["h:9", str(UUID(int=5)), "00000000-0000"])
def test_jobs_of_a_worker_are_found_by_its_name_or_its_id(
    text: str, dispatcher: ScriptedDispatcher
) -> None:
    dispatcher.answers[m.ListWorkers] = (VIEW,)
    dispatcher.answers[m.ListJobs] = ()
    assert dispatcher.run("jobs", "--worker", text) == 0
    request = dispatcher.asked[-1]
    assert isinstance(request, m.ListJobs)
    assert request.wanted.worker == UUID(int=5)


def test_a_worker_that_is_not_there_or_one_of_several_is_said(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    other = structs.replace(VIEW, info=structs.replace(VIEW.info, id=UUID(int=7)))
    dispatcher.answers[m.ListWorkers] = (VIEW, other)
    assert dispatcher.run("jobs", "--worker", "nobody") == 3
    assert capsys.readouterr().err.startswith("error: there is no worker nobody; `longshore work")
    assert dispatcher.run("jobs", "--worker", "h:9") == 2
    assert (
        f"several workers go by h:9; give the id of one: {UUID(int=5)}" in capsys.readouterr().err
    )


def test_job_shows_its_workers_by_name(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    began = HistoryEntry(JobState.RUNNING, NOW, str(UUID(int=5)))
    dispatcher.answers[m.Show] = job(history=(began,))
    dispatcher.answers[m.ListWorkers] = (VIEW,)
    assert dispatcher.run("job", "42") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  worker    h:9" in lines
    assert lines[-1].split()[2:] == ["running", "h:9"]
    assert dispatcher.run("job", "42", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["worker"], printed["worker_name"]) == (str(UUID(int=5)), "h:9")


def test_cancel_does_what_can_be_done_and_says_the_rest(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Cancel] = lambda request: tuple(
        m.CancelAnswer(ref, ID, CancelVerdict.CANCELLED) for ref in request.jobs
    )
    assert dispatcher.run("cancel", "1", "xx", "2") == 2
    printed = capsys.readouterr()
    assert printed.out == "job 1 is cancelled\njob 2 is cancelled\n"
    assert printed.err.startswith("error: 'xx' is not a job: give its number")
    assert dispatcher.run("cancel", "1", "xx", "--json") == 2
    verdicts = [(one["job"], one["verdict"]) for one in json.loads(capsys.readouterr().out)]
    assert verdicts == [(1, "cancelled"), ("xx", "malformed")]


def test_nothing_is_asked_if_no_job_is_named(dispatcher: ScriptedDispatcher) -> None:
    assert dispatcher.run("retry", "xx") == 2
    assert dispatcher.asked == []


def test_queues_as_json_count_every_state(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListQueues] = (QueueView("mail", False, {"ready": 3}),)
    assert dispatcher.run("queues", "--json") == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["counts"] == {state.value: 3 * (state == "ready") for state in JobState}
