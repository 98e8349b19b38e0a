"""`why`, in words, for every state a job can be in (G4)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.timing import span
from longshore.core.why import Facts, HeldBack, ordinal, why
from longshore.model.group import GATE, MAP, SCOPE, Condition, Group, GroupState, NodeFacts
from longshore.model.job import HistoryEntry, Job, JobError, JobState, Options, Reason
from longshore.model.program import COMMAND_KIND
from longshore.model.worker import KindInfo, Pool, WorkerInfo, WorkerView

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
WORKER = UUID(int=7)
JOB = Job(
    id=UUID(int=1),
    number=1,
    kind="fetch",
    queue="default",
    target="",
    priority=0,
    state=JobState.READY,
    args=b"\x80",
    options=Options(),
    unique_key=None,
    created_at=NOW,
    run_at=None,
    started_at=None,
    ended_at=None,
    round=1,
    attempt=0,
    failures=0,
    crashes=0,
    token=0,
    worker=None,
    result=None,
    error=None,
)
GPU = {"train": KindInfo("gpu")}
BROKE = JobError(Reason.RAISED, "no route\nto host", "ConnectionError")


def job(**changes: object) -> Job:
    return structs.replace(JOB, **changes)


def worker(**changes: object) -> WorkerView:
    known: dict[str, object] = {
        "id": WORKER,
        "name": "dock-1",
        "kinds": {"fetch": KindInfo(Pool.COROUTINE), "resize": KindInfo(Pool.PROCESS)},
        "pools": {Pool.COROUTINE: 2, Pool.PROCESS: 1},
    }
    view: dict[str, object] = {"draining": False, "running": {}, "silent_s": 0.0}
    for key, value in changes.items():
        (view if key in view else known)[key] = value
    return WorkerView(
        info=WorkerInfo(**known),  # type: ignore[arg-type]
        session=1,
        dispatcher=UUID(int=9),
        alive=True,
        started_at=NOW,
        attended_at=NOW,
        **view,  # type: ignore[arg-type]
    )


def facts(*workers: WorkerView, paused: bool = False, ahead: int = 0) -> Facts:
    held_back = HeldBack.PAUSED_QUEUE if paused else None
    return Facts(held_back=held_back, workers=workers, ahead=ahead, now=NOW)


@pytest.mark.parametrize(
    ("about", "known", "words"),
    [
        (
            job(),
            facts(),
            "no worker is connected; start one that serves 'fetch': `longshore worker`",
        ),
        (
            job(kind=COMMAND_KIND),
            facts(worker()),
            "no worker runs 'longshore.command' jobs: start one with --exec",
        ),
        (
            job(),
            structs.replace(facts(), supervisor_trouble="the app does not load"),
            "no worker serves kind 'fetch': the app does not load",
        ),
        (
            job(),
            structs.replace(
                facts(worker(draining=True)), supervisor_trouble="the app does not load"
            ),
            "every worker that serves kind 'fetch' is draining (dock-1), and others do not come: "
            "the app does not load",
        ),
        (
            job(),
            structs.replace(facts(worker()), supervisor_trouble="the app does not load"),
            "about to be given to dock-1",
        ),
        (job(kind="fetsh"), facts(worker()), "no worker serves kind 'fetsh' (nearest: 'fetch')"),
        (
            job(kind="zip"),
            facts(worker()),
            "no worker serves kind 'zip' (they serve: 'fetch', 'resize')",
        ),
        (
            job(target="gpu"),
            facts(worker(target="linux-x86_64")),
            "no worker of kind 'fetch' has target 'gpu' (there is: 'linux-x86_64')",
        ),
        (
            job(queue="mail"),
            facts(worker(queues=("default",))),
            "no worker of kind 'fetch' takes jobs from queue 'mail'",
        ),
        (
            job(queue="mail"),
            facts(worker(), paused=True),
            "queue 'mail' is paused; `longshore queues resume mail` lets it go on",
        ),
        (
            job(),
            facts(worker(draining=True)),
            "every worker that serves kind 'fetch' is draining (dock-1)",
        ),
        (
            job(),
            facts(worker(running={"fetch": 2}), ahead=3),
            "all 2 slots of dock-1 are busy; 3 jobs before it in its lane; "
            "slots=… runs more at once",
        ),
        (
            job(kind="resize"),
            facts(worker(running={"resize": 1})),
            "the only process of dock-1 is busy; "
            'processes=…, or isolation="thread" for a plain def, runs more at once',
        ),
        (
            job(),
            facts(worker(pools={Pool.COROUTINE: 1}, running={"fetch": 1})),
            "the only slot of dock-1 is busy",
        ),
        (
            job(),
            facts(worker(pools={Pool.COROUTINE: 0})),
            "dock-1 can run no 'fetch', with 0 slots",
        ),
        (
            job(kind="train"),
            facts(worker(kinds=GPU, pools={"gpu": 4}, running={"train": 4})),
            "all 4 gpu slots of dock-1 are busy",
        ),
        (
            job(kind="train"),
            facts(worker(kinds=GPU, pools={"gpu": 0, Pool.PROCESS: 8})),
            "dock-1 can run no 'train', with 0 gpu slots",
        ),
        (job(), facts(worker(running={"resize": 1})), "about to be given to dock-1"),
        (
            job(state=JobState.RUNNING, worker=WORKER, held_behind=2),
            facts(worker(running={"fetch": 5})),
            "held ahead by dock-1, behind 2 running jobs",
        ),
        (
            job(state=JobState.RUNNING, worker=WORKER, kind="resize"),
            facts(worker(running={"resize": 4})),
            "running on dock-1, or held ahead there: it has 4 jobs for 1 process",
        ),
        (
            job(state=JobState.RUNNING, worker=WORKER, kind="resize"),
            structs.replace(facts(worker(running={"resize": 4})), is_attended_here=True),
            "running on dock-1",
        ),
        (
            job(state=JobState.DELAYED, run_at=NOW + timedelta(seconds=90)),
            facts(),
            "delayed until 2030-01-01 12:01:30 UTC (1 min 30 s from now), "
            "as asked for when it was submitted",
        ),
        (
            job(
                state=JobState.DELAYED,
                run_at=NOW + timedelta(seconds=5),
                failures=2,
                error=BROKE,
            ),
            facts(),
            "delayed until 2030-01-01 12:00:05 UTC (5.0 s from now) by its 2nd retry, "
            "after ConnectionError: no route",
        ),
        (
            job(
                state=JobState.RUNNING,
                worker=WORKER,
                attempt=2,
                started_at=NOW - timedelta(seconds=12),
                step="pulling",
            ),
            facts(worker()),
            "running on dock-1 for 12 s, 2nd attempt; pulling",
        ),
        (
            job(state=JobState.CANCELLING, worker=WORKER),
            facts(worker()),
            "being cancelled; dock-1 was told to stop it",
        ),
        (
            job(state=JobState.SUCCEEDED, ended_at=NOW, attempt=3),
            facts(),
            "succeeded at 2030-01-01 12:00:00 UTC on its 3rd attempt",
        ),
        (
            job(state=JobState.FAILED, ended_at=NOW, error=BROKE),
            facts(),
            "failed at 2030-01-01 12:00:00 UTC: ConnectionError: no route",
        ),
        (
            job(
                state=JobState.CANCELLED,
                ended_at=NOW,
                history=(HistoryEntry(JobState.CANCELLED, NOW, info="by hand"),),
            ),
            facts(),
            "cancelled at 2030-01-01 12:00:00 UTC (by hand)",
        ),
    ],
)
def test_why_says_it_in_words(about: Job, known: Facts, words: str) -> None:
    assert why(about, known) == words


def test_a_worker_whose_dispatcher_is_silent_counts_only_if_there_is_no_other() -> None:
    silent = worker(silent_s=9.0)
    busy = worker(id=UUID(int=8), name="dock-2", running={"fetch": 2})
    draining = worker(id=UUID(int=9), name="dock-3", draining=True)
    for mixed in ([silent, busy], [busy, silent]):
        assert why(job(), facts(*mixed)) == (
            "all 2 slots of dock-2 are busy; slots=… runs more at once"
        )
    free = structs.replace(busy, running={})
    assert why(job(), facts(silent, free)) == "about to be given to dock-2"
    assert why(job(), facts(silent, draining)).endswith("is draining (dock-3)")
    assert why(job(), facts(silent)).startswith("dock-1 could run it, but the dispatcher that")


@pytest.mark.parametrize("state", sorted(JobState))
def test_every_state_has_words(state: JobState) -> None:
    assert why(job(state=state), facts(worker()))


def test_spans_and_ordinals_read_well() -> None:
    assert [span(s) for s in (0.35, 5.25, 12, 303, 7800, 100_000)] == [
        "350 ms",
        "5.2 s",
        "12 s",
        "5 min 3 s",
        "2 h 10 min",
        "1 d 3 h",
    ]
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "112th",
    ]


def node(
    unmet: int = 2,
    after: int = 3,
    on: Condition = Condition.SUCCEEDED,
    state: GroupState = GroupState.RUNNING,
    *waits_for: tuple[str, JobState],
) -> NodeFacts:
    group = Group(
        id=UUID(int=5),
        number=3,
        name="nightly",
        state=state,
        jobs=4,
        fail_fast=False,
        labels=(),
        created_at=NOW,
    )
    return NodeFacts(key="b", group=group, on=on, after=after, unmet=unmet, waits_for=waits_for)


TWO = (("left", JobState.RUNNING), ("right", JobState.READY))


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (
            node(2, 3, Condition.SUCCEEDED, GroupState.RUNNING, *TWO),
            "waiting for 2 of 3: 'left' (running), 'right' (ready)",
        ),
        (
            node(9, 10, Condition.SUCCEEDED, GroupState.RUNNING, *TWO),
            "waiting for 9 of 10: 'left' (running), 'right' (ready) and 7 more",
        ),
        (
            node(2, 2, Condition.ENDED, GroupState.RUNNING, *TWO),
            "waiting for 2 of 2 to end, however they do: 'left' (running), 'right' (ready)",
        ),
        (
            node(2, 3, Condition.FAILED, GroupState.RUNNING, *TWO),
            "waiting for a failure, and 2 of 3 have not ended: 'left' (running), 'right' (ready)",
        ),
        (
            node(1, 1, Condition.SUCCEEDED, GroupState.RUNNING, ("plan", JobState.SUCCEEDED)),
            "waiting for 1 of 1: 'plan' (succeeded, but jobs below it have not ended)",
        ),
        (
            node(0, 3),
            "what it depends on has ended; a dispatcher is about to decide what becomes of it",
        ),
        (  # they have ended, and nobody has told it yet
            node(1, 3, Condition.SUCCEEDED, GroupState.RUNNING),
            "what it depends on has ended; a dispatcher is about to decide what becomes of it",
        ),
        (
            node(1, 1, Condition.SUCCEEDED, GroupState.STAGING),
            "its group 'nightly' is not complete: its submitter has not sent all jobs",
        ),
        (
            node(1, 1, Condition.SUCCEEDED, GroupState.CANCELLING),
            "its group 'nightly' is being cancelled, and it will be",
        ),
    ],
)
def test_a_job_that_waits_names_what_for(known: NodeFacts, words: str) -> None:
    """G4."""
    about = structs.replace(facts(), node=known)
    assert why(job(state=JobState.WAITING), about) == words


def test_a_turn_says_which_version_waits_for_which_worker() -> None:
    turn = structs.replace(job(kind="Club@3", state=JobState.READY), options=Options(turn=True))
    old = worker(kinds={"Club@1": KindInfo(), "Club@2": KindInfo()})
    assert why(turn, facts(old)) == (
        "its state is of version 3, and no live worker serves that: dock-1 serves up to version 2 "
        "of 'Club'. Start one that has the newer class"
    )
    assert why(turn, facts(worker(kinds={"work": KindInfo()}))) == (
        "no live worker serves actors of type 'Club'; start one that has the class"
    )


def test_a_turn_that_waits_says_that_its_actor_is_paused() -> None:
    turn = structs.replace(job(state=JobState.WAITING), options=Options(turn=True))
    assert why(turn, facts()) == "its actor is paused; resume the actor to let it go on"


def test_a_job_that_was_taken_over_says_from_which() -> None:
    known = node(0, 0)
    known = structs.replace(known, taken_from=17, group=structs.replace(known.group, run_of=2))
    words = why(job(state=JobState.SUCCEEDED), structs.replace(facts(), node=known))
    assert words.endswith(": taken over from job 17 of group 2, which this group is a new run of")


def test_a_gate_says_how_it_is_opened_and_when_it_is_too_late() -> None:
    about = structs.replace(facts(), node=node(0, 0))
    late = job(kind=GATE, deadline_at=NOW + timedelta(seconds=30))
    assert why(late, about) == (
        "waiting until somebody opens this gate: `longshore group open 3 b`, with --value JSON if "
        "the jobs after it want one; expires in 30 s if nobody opens it"
    )
    assert why(job(kind=GATE), facts()) == "waiting until somebody opens this gate"


def test_maps_and_subgroups_wait_for_no_worker() -> None:
    assert why(job(kind=MAP), facts()) == (
        "about to become one job for each element of its list, by a dispatcher"
    )
    assert why(job(kind=SCOPE), facts()) == "about to be counted, by a dispatcher"


def test_growth_that_was_refused_is_the_reason_of_the_failure() -> None:
    error = JobError(Reason.INVALID_GROWTH, "it adds jobs to its group, but it is in no group")
    assert why(job(state=JobState.FAILED, error=error), facts()).endswith("it is in no group")


def test_a_job_that_cannot_run_names_the_root_of_it() -> None:
    error = JobError(Reason.DEPENDENCY_FAILED, "'fetch' failed: OSError: no route")
    about = job(state=JobState.DEPENDENCY_FAILED, error=error)
    assert why(about, facts()) == "not run, because 'fetch' failed: OSError: no route"
