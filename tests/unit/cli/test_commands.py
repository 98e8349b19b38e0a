"""Commands: what they ask a dispatcher, what they print, how they exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher, fleet_of

from longshore.cli.main import cli, execute
from longshore.core.key_limits import BY_FUNCTION
from longshore.errors import NotFound, UnknownKind
from longshore.model.job import (
    ArgTerm,
    CancelVerdict,
    Ended,
    HistoryEntry,
    Job,
    JobError,
    JobFilter,
    JobPage,
    JobState,
    Options,
    Progress,
    Reason,
    RetryPolicy,
    RetryVerdict,
    Submission,
)
from longshore.model.limits import Debounced, JobLimit, Rate
from longshore.model.worker import KindInfo, KindTerms, QueueView
from longshore.payload.values import pack, unpack
from longshore.wire import messages as m

ID = UUID("0193290c-6a00-7000-8000-000000000001")
AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)

Captured = pytest.CaptureFixture[str]


def job(**changes: Any) -> Job:
    shown = Job(
        id=ID,
        number=42,
        kind="resize",
        queue="default",
        target="",
        priority=0,
        state=JobState.SUCCEEDED,
        args=pack({"file": "a.png"}, "args"),
        options=Options(),
        unique_key=None,
        created_at=AT,
        run_at=None,
        started_at=AT + timedelta(seconds=1),
        ended_at=AT + timedelta(seconds=3.5),
        round=1,
        attempt=1,
        failures=0,
        crashes=0,
        token=7,
        worker=UUID(int=5),
        result=pack([1, 2], "result"),
        error=None,
        history=(HistoryEntry(JobState.READY, AT, "a client", "submitted"),),
    )
    return structs.replace(shown, **changes)


def accept(request: m.Submit) -> tuple[m.SubmitAnswer, ...]:
    return tuple(m.SubmitAnswer(job.id, 42) for job in request.jobs)


def end(state: JobState, **more: Any) -> Callable[[m.Wait], tuple[Ended, ...]]:
    return lambda request: tuple(Ended(id, state, **more) for id in request.jobs)


# submit


def test_submit_sends_what_the_flags_say(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.Submit] = accept
    arguments = (
        "submit resize file=a.png width=300 tags=[1,null] n=1.5 s='x --queue q --target t "
        "--priority 9 --delay 5m --timeout 90s --retries 2 --backoff 500ms --unique-key k "
        f"--label one --label two --id {ID} --strict"
    )
    assert dispatcher.run(*arguments.split()) == 0
    _, request, *_ = dispatcher.asked
    assert isinstance(request, m.Submit)
    (sent,) = request.jobs
    assert request.strict
    assert unpack(sent.args) == {
        "file": "a.png",
        "width": 300,
        "tags": [1, None],
        "n": 1.5,
        "s": "'x",
    }
    assert (sent.id, sent.kind, sent.queue, sent.target) == (ID, "resize", "q", "t")
    assert (sent.priority, sent.delay_s, sent.unique_key) == (9, 300, "k")
    assert sent.options == Options(
        timeout_s=90, retry=RetryPolicy(attempts=3, backoff_s=0.5), labels=("one", "two")
    )


DECLARED = KindTerms("q", "linux", 3, 30.0, RetryPolicy(attempts=4, backoff_s=5), expires_s=60)


def test_submit_uses_what_the_app_declares(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.ShowKind] = KindInfo(terms=DECLARED)
    dispatcher.answers[m.Submit] = accept
    assert dispatcher.run("submit", "resize") == 0
    asked, request, *_ = dispatcher.asked
    assert isinstance(asked, m.ShowKind)
    assert asked.kind == "resize"
    assert isinstance(request, m.Submit)
    (sent,) = request.jobs
    assert (sent.queue, sent.target, sent.priority) == ("q", "linux", 3)
    retry = RetryPolicy(attempts=4, backoff_s=5)
    assert sent.options == Options(timeout_s=30, retry=retry, expires_s=60)


def test_a_flag_goes_before_what_the_app_declares(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.ShowKind] = KindInfo(terms=DECLARED)
    dispatcher.answers[m.Submit] = accept
    flags = ("--queue", "default", "--target", "", "--priority", "0", "--timeout", "1")
    assert dispatcher.run("submit", "resize", *flags, "--retries", "0", "--expires", "2m") == 0
    _, request, *_ = dispatcher.asked
    assert isinstance(request, m.Submit)
    (sent,) = request.jobs
    assert (sent.queue, sent.target, sent.priority) == ("default", "", 0)
    retry = RetryPolicy(attempts=1, backoff_s=5)
    assert sent.options == Options(timeout_s=1, retry=retry, expires_s=120)


def sent(dispatcher: ScriptedDispatcher, *words: str) -> Submission:
    """The job that `longshore submit resize` sent with these words."""
    dispatcher.answers[m.Submit] = accept
    assert dispatcher.run("submit", "resize", "tenant=acme", *words) == 0
    [request] = [one for one in dispatcher.asked if isinstance(one, m.Submit)]
    return request.jobs[0]


def test_submit_gives_limits_and_a_fair_key(dispatcher: ScriptedDispatcher) -> None:
    rate = "key=api=maps,rate=100/min,burst=20"
    job = sent(dispatcher, "--limit", "3", "--limit", rate, "--fair-by", "tenant")
    assert job.options.limits == (
        JobLimit("kind=resize", 3),
        JobLimit("api=maps", None, Rate(100, 60.0, 20)),
    )
    assert job.options.fair == "tenant=acme"


def test_submit_gives_a_debounce(dispatcher: ScriptedDispatcher) -> None:
    job = sent(dispatcher, "--debounce", '{"wait_s": 5, "key": "tenant"}')
    assert (job.options.debounce, job.delay_s) == (Debounced("tenant=acme", 5.0), 5.0)


def test_submit_gives_the_key_that_a_function_makes_or_says_none(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    made = (JobLimit(BY_FUNCTION, 1),)
    terms = KindTerms(limits=made, fair_by=BY_FUNCTION, debounce=Debounced(BY_FUNCTION, 5.0))
    dispatcher.answers[m.ShowKind] = KindInfo(terms=terms)
    assert dispatcher.run("submit", "resize") == 2
    assert "whose key a function of its app makes" in capsys.readouterr().err
    job = sent(dispatcher, "--limit", "none", "--fair-by", "none", "--debounce", "none")
    assert (job.options.limits, job.options.fair, job.options.debounce) == ((), "", None)


def test_submit_takes_arguments_as_json_text_or_file(
    dispatcher: ScriptedDispatcher, tmp_path: Path
) -> None:
    dispatcher.answers[m.Submit] = accept
    (tmp_path / "args.json").write_text('{"a": 1}')
    assert dispatcher.run("submit", "add", "--args", '{"a": 1}', "b=2") == 0
    assert dispatcher.run("submit", "add", "--args", "@args.json") == 0
    submits = [request for request in dispatcher.asked if isinstance(request, m.Submit)]
    sent = [unpack(submit.jobs[0].args) for submit in submits]
    assert sent == [{"a": 1, "b": 2}, {"a": 1}]


def test_submit_at_a_time_is_in_utc(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.Submit] = accept
    assert dispatcher.run("submit", "add", "--run-at", "2026-01-31T14:00:00+02:00") == 0
    _, request, *_ = dispatcher.asked
    assert isinstance(request, m.Submit)
    assert request.jobs[0].run_at == AT


def test_submit_of_raw_bytes(
    dispatcher: ScriptedDispatcher, capfd: pytest.CaptureFixture[str]
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = end(JobState.SUCCEEDED, result=b"HELLO")
    assert dispatcher.run("submit", "raw", "--data", "hello", "--wait") == 0
    request = dispatcher.asked[1]
    assert isinstance(request, m.Submit)
    assert (request.jobs[0].args, request.jobs[0].options.raw) == (b"hello", True)
    assert capfd.readouterr().out == "HELLO"


def test_submit_says_the_number_and_the_id(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    assert dispatcher.run("submit", "add", "--id", str(ID)) == 0
    assert capsys.readouterr().out == f"submitted job 42 ({ID})\n"
    assert dispatcher.run("submit", "add", "--id", str(ID), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"id": str(ID), "number": 42, "existing": False}


@pytest.mark.parametrize(
    ("served", "hint"), [(["thumbnail"], " (nearest: 'thumbnail')"), (["mail"], ""), ([], "")]
)
@pytest.mark.parametrize("words", [[], ["--json"], ["--wait"]])
def test_a_submit_of_a_kind_that_nobody_serves_is_accepted_and_says_so(
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
    served: list[str],
    hint: str,
    words: list[str],
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.ShowCapacity] = fleet_of(*served)
    dispatcher.answers[m.Wait] = end(JobState.SUCCEEDED)
    assert dispatcher.run("submit", "thumbnial", *words) == 0
    printed = capsys.readouterr()
    assert "no live worker" not in printed.out
    (line,) = [line for line in printed.err.splitlines() if "submitted" not in line]
    told = f"no live worker takes jobs of kind 'thumbnial' now{hint}; job 42 waits for one. "
    assert line.startswith(told)


def test_a_submit_says_nothing_more_if_a_worker_serves_the_kind_or_nobody_can_tell(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    for fleet in (fleet_of("add", "mail"), NotFound("there is no such request")):
        dispatcher.answers[m.ShowCapacity] = fleet
        assert dispatcher.run("submit", "add") == 0
        assert capsys.readouterr().err == ""


def test_a_refused_submit_exits_as_its_error_says(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    refusal = UnknownKind("no live worker serves kind 'ad'")
    dispatcher.answers[m.Submit] = (m.SubmitAnswer(ID, code=refusal.code, message=str(refusal)),)
    assert dispatcher.run("submit", "ad", "--strict") == 2
    assert capsys.readouterr().err == "error: no live worker serves kind 'ad'\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("submit add a", "'a' is not KEY=VALUE"),
        ("submit add n=1 n=2", "'n' is given twice; give each argument once"),
        ("submit add n=nan", "n=nan: JSON has no such number; if text is meant, quote it"),
        ("submit add n=-Infinity", "n=-Infinity: JSON has no such number"),
        ("submit add n=1e999", "n=1e999: number out of range"),
        ("submit add --retries 1000000", "'1000000' is not a whole number from 0 to 999999"),
        ("submit add --priority high", "'high' is not a whole number from -32768 to 32767"),
        ("logs 1 --attempt 0", "'0' is not a whole number, 1 or more"),
        ("jobs --state", "requires an argument; see `longshore jobs --help`"),
        ("submit add --prio 3", "'--prio' (nearest: '--priority'); see `longshore submit --help`"),
        ("jobs --quue mail", "No such option '--quue' (nearest: '--queue'); see `longshore jobs"),
        ("jobs --since yesterday", "'yesterday' is neither a duration, like 30m or 2h, nor a time"),
        ("jobs --since 0001-01-01T00:00:00+05:00", "nor a time with its zone"),
        ("jobs --since 9999-12-31T23:59:59-05:00", "nor a time with its zone"),
        ("jobs --since 2026-01-31T12:00:00", "nor a time with its zone"),
        ("jobs --watch", "--watch needs a terminal to draw on; add --json"),
        ("queues pause mail --watch", "--watch is for looking; leave it out to change something"),
        ("workers drain h:9 --every 1", "--watch is for looking"),
        ("jobs --every 0", "'0' is not a duration of at least 0.1 s"),
        ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        ("submit add --args [1]", "--args is not a JSON object"),
        ("submit add --args @gone.json", "--args: cannot read gone.json: No such file"),
        ("submit add --delay soon", "'soon' is not a duration"),
        ("submit add --limit some", "limit is 'some'; give a number, or some of concurrency"),
        ("submit add --limit key=a", "limited by its parameter 'a', which this job was not given"),
        ("submit add --limit kee=a", "give a number, or some of concurrency, key"),
        ("submit add --limit 1 --limit 2", "'kind=add' is given twice"),
        ("submit add --fair-by a", "shares by its parameter 'a'"),
        ("submit add --debounce soon", "debounce is 'soon'; give seconds, or wait_s"),
        ("submit add --debounce 5 --unique-key x", "unique_key the first"),
        ("submit add --delay -1", "'-1' is not a duration"),
        ("submit add --run-at tomorrow", "'tomorrow' is not a time with its zone"),
        ("submit add --run-at 9999-12-31T23:59:59-05:00", "is not a time with its zone"),
        ("submit add --run-at 2026-01-31T12:00:00", "is not a time with its zone"),
        ("submit add --delay 1 --run-at 2026-01-31T12:00:00Z", "exclude each other"),
        ("submit raw a=1 --data x", "leave out --args and KEY=VALUE"),
        ("submit add n=123456789012345678901234567890", "the arguments of job 'add'"),
        ("submit add --priority 99999", "Invalid value for '--priority'"),
        ("submit", "Missing argument 'KIND'; see `longshore submit --help`"),
        ("submit add --set leases=3", "did you mean lease_s?"),
        ("job x", "'x' is not a job: give its number (like 42) or its id"),
        ("jobs --limit 0", "Invalid value for '--limit'"),
        ("queues pause", "name the queue"),
        ("jbos", "No such command 'jbos'"),
        ("jobs --config gone.toml", "cannot read gone.toml"),
        ("worker", "a worker needs the app whose jobs it runs: --app module:app"),
        ("worker --app a:b --ready-fd 999", "--ready-fd 999 is not open"),
        ("dispatcher --ready-fd 1", "--ready-fd 1 is a standard one"),
        ("migrate --store sqlite:///tpm/a.db", "there is no folder tpm; make it, or correct the"),
        ("dispatcher --store sqlite:////nowhere/a.db", "there is no folder /nowhere; make it"),
        ("migrate --store mysql://u:secret@h/x", "'mysql://***@h/x' is not the URL of a store"),
    ],
)
def test_what_cannot_be_accepted_is_one_line_and_exit_code_2(
    arguments: str, message: str, capsys: Captured
) -> None:
    assert execute(arguments.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


# submit --wait


def test_waiting_prints_the_result_as_json(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    result = pack({"a": [1, b"\x00\xff", AT]}, "result")
    dispatcher.answers[m.Wait] = end(JobState.SUCCEEDED, result=result)
    assert dispatcher.run("submit", "add", "--wait") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"a": [1, "AP8=", "2026-01-31T12:00:00.000000Z"]}


def test_waiting_for_a_job_that_fails_exits_with_1(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    error = JobError(Reason.RAISED, "no\nroute", "OSError", "Traceback …")
    dispatcher.answers[m.Wait] = end(JobState.FAILED, error=error)
    assert dispatcher.run("submit", "add", "--wait", "--json") == 1
    printed = capsys.readouterr()
    outcome = json.loads(printed.out)
    assert (outcome["number"], outcome["state"], outcome["result"]) == (42, "failed", None)
    assert outcome["error"] == {
        "reason": "raised",
        "message": "no\nroute",
        "type": "OSError",
        "traceback": "Traceback …",
        "exit_code": None,
    }
    assert "error: job 42 failed, raised: OSError: no; `longshore job 42` shows" in printed.err


def test_waiting_for_a_job_that_is_cancelled_exits_with_1(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = end(JobState.CANCELLED)
    assert dispatcher.run("submit", "add", "--wait") == 1
    assert "error: job 42 was cancelled\n" in capsys.readouterr().err


def test_waiting_too_long_exits_with_5_and_says_where_to_look(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = ()
    dispatcher.answers[m.Show] = job(state=JobState.READY)
    assert dispatcher.run("submit", "add", "--within", "0") == 5
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "job 42 has not ended within 0 s and goes on; `longshore why 42`" in printed.err


def test_waiting_says_what_the_job_is_doing_when_that_changes(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    waits = iter([(), (), (), (Ended(ID, JobState.SUCCEEDED, pack(None, "result")),)])
    dispatcher.answers[m.Wait] = lambda request: next(waits)
    said = Progress(1, 4, "of them")
    running = job(state=JobState.RUNNING)
    far = structs.replace(running, progress=said, step="reading")
    looks = iter([structs.replace(running, state=JobState.READY), far, far])
    dispatcher.answers[m.Show] = lambda request: next(looks)
    assert dispatcher.run("submit", "resize", "--id", str(ID), "--wait") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"submitted job 42 ({ID})",
        "job 42: ready",
        "job 42: running 1/4 (25%) of them · reading",
    ]


def test_waiting_in_a_pipe_says_progress_alone_only_now_and_then(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Submit] = accept
    waits = iter([*[()] * 20, (Ended(ID, JobState.SUCCEEDED, pack(None, "result")),)])
    dispatcher.answers[m.Wait] = lambda request: next(waits)
    steps = iter(range(20))
    running = job(state=JobState.RUNNING)
    dispatcher.answers[m.Show] = lambda request: structs.replace(
        running, progress=Progress(next(steps), 20)
    )
    assert dispatcher.run("submit", "resize", "--id", str(ID), "--wait") == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [f"submitted job 42 ({ID})", "job 42: running 0/20 (0%)"]


# looking


def test_jobs_asks_for_what_the_filters_say(dispatcher: ScriptedDispatcher) -> None:
    dispatcher.answers[m.ListJobs] = JobPage()
    arguments = (
        "jobs --state failed --state ready --kind k --queue q --limit 7 --before 9 "
        "--label red --label big --since 2026-01-31T13:00:00+01:00"
    )
    assert dispatcher.run(*arguments.split()) == 0
    (request,) = dispatcher.asked
    assert isinstance(request, m.ListJobs)
    assert request.wanted == JobFilter(
        states=(JobState.FAILED, JobState.READY),
        kind="k",
        queue="q",
        before=9,
        limit=7,
        labels=("red", "big"),
        since=AT,
    )


def test_jobs_searches_by_terms_and_an_option_goes_before_a_term(
    dispatcher: ScriptedDispatcher,
) -> None:
    dispatcher.answers[m.ListJobs] = JobPage()
    terms = ("kind:a", "state:failed", "arg.tenant:acme", 'error:"timed out"', "slower:30s")
    assert dispatcher.run("jobs", *terms, "older:2026-01-31T12:00:00Z", "--kind", "b") == 0
    (request,) = dispatcher.asked
    assert isinstance(request, m.ListJobs)
    assert request.wanted == JobFilter(
        states=(JobState.FAILED,),
        kind="b",
        until=AT,
        slower_s=30.0,
        error="timed out",
        args=(ArgTerm("tenant", "acme"),),
    )


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (["slover:3s"], "did you mean slower:?"),
        (["slower:x"], "is no duration"),
        (["older:x"], "neither a duration"),
        (["7"], "`longshore job 7`"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_words(
    dispatcher: ScriptedDispatcher, capsys: Captured, terms: list[str], words: str
) -> None:
    assert dispatcher.run("jobs", *terms) != 0
    assert words in capsys.readouterr().err
    assert not dispatcher.asked


def test_jobs_in_a_pipe_are_plain_columns(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    failed = JobError(Reason.RAISED, "no [red]route\nto\x1b[31m host", "OSError")
    dispatcher.answers[m.ListJobs] = JobPage(
        (
            job(number=1043, state=JobState.FAILED, kind="a" * 90, error=failed),
            job(),
            job(number=9, state=JobState.RUNNING, ended_at=None, progress=Progress(1, 3)),
        )
    )
    assert dispatcher.run("jobs") == 0
    assert capsys.readouterr().out == (
        f"NUMBER  STATE      {'KIND':<90}  QUEUE    ATTEMPT  CREATED             "
        "  TOOK   PROGRESS  ERROR\n"
        f"  1043  failed     {'a' * 90}  default        1  2026-01-31 12:00:00Z  2.5 s            "
        "raised: OSError: no [red]route\n"
        f"    42  succeeded  {'resize':<90}  default        1  2026-01-31 12:00:00Z  2.5 s\n"
        f"     9  running    {'resize':<90}  default        1  2026-01-31 12:00:00Z         33%\n"
    )


def test_jobs_as_json_is_a_list_without_arguments_and_results(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListJobs] = JobPage((job(),))
    assert dispatcher.run("jobs", "--json") == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["created_at"] == "2026-01-31T12:00:00.000000Z"
    assert printed["id"] == str(ID)
    assert not {"args", "result", "history"} & printed.keys()


def test_no_jobs_is_an_empty_list_and_a_word_on_standard_error(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListJobs] = JobPage()
    assert dispatcher.run("jobs") == 0
    assert capsys.readouterr() == ("", "no such jobs\n")
    assert dispatcher.run("jobs", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_job_shows_everything_there_is(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListWorkers] = ()
    error = JobError(Reason.RAISED, "no route", "OSError", 'Traceback\n  File "a.py", line 1')
    dispatcher.answers[m.Show] = job(
        state=JobState.FAILED,
        error=error,
        failures=2,
        attempt=2,
        crashes=1,
        round=3,
        unique_key="k",
        options=Options(timeout_s=9, labels=("x", "y"), retry=RetryPolicy(attempts=2)),
        progress=Progress(3, None, "pages"),
        step="reading",
    )
    assert dispatcher.run("job", "42") == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "job 42 failed",
        f"  id          {ID}",
        "  kind        resize",
        "  queue       default",
        "  priority    0",
        "  labels      x, y",
        "  unique key  k",
        '  args        {"file":"a.png"}',
        "  error       raised: OSError: no route",
        "  attempts    2, 2 of at most 2 failed, 1 crashed, round 3",
        "  timeout     9 s",
        f"  worker      {UUID(int=5)}",
        "  progress    3 pages",
        "  step        reading",
        "  created     2026-01-31 12:00:00Z",
        "  started     2026-01-31 12:00:01Z",
        "  ended       2026-01-31 12:00:03Z (took 2.5 s)",
        "",
        "traceback",
        "Traceback",
        '  File "a.py", line 1',
        "",
        "history",
        "AT                        STATE  BY        INFO",
        "2026-01-31 12:00:00.000Z  ready  a client  submitted",
    ]


def test_job_as_json_has_every_field(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.Show] = job()
    dispatcher.answers[m.ListWorkers] = ()
    assert dispatcher.run("job", str(ID), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    wanted = {*Job.__struct_fields__, *Options.__struct_fields__} - {"options"}
    of_its_group = {"key", "after", "on", "dependents", "taken_from"}
    assert printed.keys() == wanted | {"worker_name", "callbacks", "steps", "used"} | of_its_group
    assert (printed["args"], printed["result"]) == ({"file": "a.png"}, [1, 2])
    assert printed["retry"]["attempts"] == 1
    assert printed["history"][0]["at"] == "2026-01-31T12:00:00.000000Z"


def test_a_job_that_is_not_there_exits_with_3(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.Show] = NotFound("there is no job 42")
    dispatcher.answers[m.ShowGroup] = NotFound("there is no group 42")
    assert dispatcher.run("job", "42") == 3
    assert capsys.readouterr() == ("", "error: there is no job 42\n")


def test_why_says_it_in_words(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.Why] = m.WhyAnswer(ID, 42, "ready", "no worker serves kind 'resize'")
    assert dispatcher.run("why", "42") == 0
    assert capsys.readouterr().out == "job 42 (ready): no worker serves kind 'resize'\n"
    assert dispatcher.run("why", "42", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        "id": str(ID),
        "number": 42,
        "state": "ready",
        "why": "no worker serves kind 'resize'",
        "key": "",
    }


# changing


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([CancelVerdict.CANCELLED, CancelVerdict.CANCELLING], 0),
        ([CancelVerdict.CANCELLED, CancelVerdict.ALREADY_ENDED], 2),
        ([CancelVerdict.ALREADY_ENDED, CancelVerdict.NOT_FOUND], 3),
    ],
)
def test_cancel_exits_as_the_worst_of_its_jobs(
    verdicts: list[CancelVerdict], code: int, dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    def answer(request: m.Cancel) -> tuple[m.CancelAnswer, ...]:
        pairs = zip(request.jobs, verdicts, strict=True)
        return tuple(
            m.CancelAnswer(ref, None if said is CancelVerdict.NOT_FOUND else ID, said)
            for ref, said in pairs
        )

    dispatcher.answers[m.Cancel] = answer
    assert dispatcher.run("cancel", "42", "43") == code
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("verdict", "code", "words"),
    [
        (RetryVerdict.RETRIED, 0, "job 42 is ready again"),
        (RetryVerdict.NOT_ENDED, 2, "job 42 has not ended"),
        (RetryVerdict.SUCCEEDED, 2, "job 42 succeeded"),
        (RetryVerdict.UNIQUE_KEY_TAKEN, 2, "job 42 cannot run"),
        (RetryVerdict.NOT_FOUND, 3, "job 42 does not exist"),
    ],
)
def test_retry_says_what_it_did(
    verdict: RetryVerdict,
    code: int,
    words: str,
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
) -> None:
    found = None if verdict is RetryVerdict.NOT_FOUND else ID
    dispatcher.answers[m.Retry] = (m.RetryAnswer(42, found, verdict),)
    assert dispatcher.run("retry", "42") == code
    assert capsys.readouterr().out.startswith(words)


def test_queues_are_listed_and_paused(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListQueues] = (QueueView("mail", True, {"ready": 3}),)
    dispatcher.answers[m.Pause] = None
    assert dispatcher.run("queues") == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["QUEUE", "IS", "DELAYED"]
    assert row.split() == ["mail", "paused", "0", "3", *["0"] * 5]
    assert dispatcher.run("queues", "pause", "mail", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "mail", "paused": True}]
    assert dispatcher.run("queues", "--json", "resume", "mail") == 0
    pauses = [request for request in dispatcher.asked if isinstance(request, m.Pause)]
    assert [(pause.queue, pause.paused) for pause in pauses] == [("mail", True), ("mail", False)]


def test_pausing_a_queue_that_never_held_a_job_says_so(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListQueues] = (QueueView("mail", False, {"ready": 3}),)
    dispatcher.answers[m.Pause] = None
    assert dispatcher.run("queues", "pause", "mial") == 0
    assert "no job was ever in queue 'mial' (nearest: 'mail')" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--args", '{"x":' + "[" * 9999 + "]" * 9999 + "}"]])
def test_json_nested_too_deep_is_refused_in_one_line(
    dispatcher: ScriptedDispatcher, capsys: Captured, words: list[str]
) -> None:
    assert dispatcher.run("submit", "echo", *words) == 2
    assert capsys.readouterr().err == "error: --args is nested too deep; make it flatter\n"


# how commands end


def test_nobody_there_exits_with_4(capsys: Captured) -> None:
    arguments = "jobs --connect tcp://127.0.0.1:9 --set request_timeout_s=50ms"
    assert execute(arguments.split()) == 4
    assert capsys.readouterr().err.startswith("error: no dispatcher answers at tcp://127.0.0.1:9")


def test_connect_is_taken_from_the_flag_the_variable_and_the_file(
    dispatcher: ScriptedDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher.answers[m.ListQueues] = ()
    (tmp_path / "longshore.toml").write_text('connect = "a"\n')
    dispatcher.run("queues")
    monkeypatch.setenv("LONGSHORE_CONNECT", "b")
    dispatcher.run("queues")
    dispatcher.run("queues", "--connect", "c")
    found = [config.connect for config in dispatcher.configs]
    assert found == [("tcp://a:7702",), ("tcp://b:7702",), ("tcp://c:7702",)]


def test_an_interrupt_exits_with_130_and_says_nothing_of_python(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    def interrupt(request: m.Wait) -> tuple[Ended, ...]:
        os.kill(os.getpid(), signal.SIGINT)
        return ()

    dispatcher.answers[m.Submit] = accept
    dispatcher.answers[m.Wait] = interrupt
    dispatcher.answers[m.Show] = job(state=JobState.RUNNING)
    assert dispatcher.run("submit", "add", "--wait") == 130
    printed = capsys.readouterr()
    assert "job 42 goes on; `longshore cancel 42` cancels it, `longshore logs 42" in printed.err
    assert "Traceback" not in printed.err


def test_a_closed_pipe_ends_a_command_silently() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "longshore", "version"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_every_command_is_where_the_table_says() -> None:
    assert {name: cli.commands[name].name for name in cli.commands} == {
        name: name for name in cli.commands
    }


def test_a_command_imports_no_other() -> None:
    """Commands start fast: each imports what it needs and no more."""
    code = "import sys; from longshore.cli.main import execute; execute(['version']); "
    code += "print([name for name in sys.modules if name.startswith('longshore.cli.commands.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['longshore.cli.commands.version']"


def test_help_fits_a_terminal_and_explains_exit_codes_once(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("", *cli.commands):
        assert execute([*command.split(), "--help"]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80, command
        assert ("Examples:" in shown) is (command != ""), command
        assert ("Exit codes" in shown) is (command == ""), command
        assert "..." not in shown.partition("Options:")[2], command


def test_every_command_explains_itself_with_examples(capsys: Captured) -> None:
    for command in cli.commands:
        assert execute([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "Example" in shown, command
        assert "--json" in shown, command


def test_help_is_a_command_too(capsys: Captured) -> None:
    for words, meant in (("help", "--help"), ("help jobs", "jobs --help")):
        assert execute(meant.split()) == 0
        shown = capsys.readouterr().out
        assert execute(words.split()) == 0
        assert capsys.readouterr().out == shown
    assert execute(["help", "jbos"]) == 2
    assert "No such command 'jbos' (nearest: 'jobs')" in capsys.readouterr().err


def test_a_mistyped_command_is_told_with_the_nearest(capsys: Captured) -> None:
    assert execute(["jbos"]) == 2
    told = "error: No such command 'jbos' (nearest: 'jobs'); see `longshore --help`\n"
    assert capsys.readouterr().err == told
    assert execute(["zzz"]) == 2
    assert capsys.readouterr().err == "error: No such command 'zzz'; see `longshore --help`\n"
