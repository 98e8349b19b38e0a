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

from longshore.model.job import CancelVerdict, HistoryEntry, JobPage, JobState
from longshore.model.worker import QueueView
from longshore.wire import messages as m

Captured = pytest.CaptureFixture[str]
NOW = datetime.now(UTC)


def test_jobs_since_so_long_ago_are_those_after_that_moment(
    dispatcher: ScriptedDispatcher,
) -> None:
    dispatcher.answers[m.ListJobs] = JobPage()
    assert dispatcher.run("jobs", "--since", "150m") == 0
    (request,) = dispatcher.asked
    assert isinstance(request, m.ListJobs)
    assert request.wanted.since is not None
    ago = datetime.now(UTC) - request.wanted.since
    assert timedelta(minutes=150) <= ago < timedelta(minutes=151)


def test_a_list_that_stopped_early_says_how_to_go_on(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListJobs] = JobPage((job(number=9),), stopped_at=7)
    assert dispatcher.run("jobs", "--label", "red", "--json") == 0
    printed = capsys.readouterr()
    assert [one["number"] for one in json.loads(printed.out)] == [9]
    remark = "the search stopped at job 7; `--before 7` goes on from there\n"
    assert printed.err == remark
    dispatcher.answers[m.ListJobs] = JobPage((), stopped_at=7)
    assert dispatcher.run("jobs", "--label", "red") == 0
    assert capsys.readouterr() == ("", f"no such jobs\n{remark}")


@pytest.mark.parametrize("text", ["h:9", str(UUID(int=5)), "00000000-0000"])
def test_jobs_of_a_worker_are_found_by_its_name_or_its_id(
    text: str, dispatcher: ScriptedDispatcher
) -> None:
    dispatcher.answers[m.ListWorkers] = (VIEW,)
    dispatcher.answers[m.ListJobs] = JobPage()
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


def test_the_history_of_a_job_that_no_worker_has_names_those_that_had_it(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    began = HistoryEntry(JobState.RUNNING, NOW, str(UUID(int=5)))
    dispatcher.answers[m.Show] = job(state=JobState.DELAYED, worker=None, history=(began,))
    dispatcher.answers[m.ListWorkers] = (VIEW,)
    assert dispatcher.run("job", "42") == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["running", "h:9"]


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
