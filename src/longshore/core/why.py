"""Says in words why a job is in its state, for every state, and what it must know for that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from longshore.core.blocking import Cause, able_workers, cause_of, left_of, taken_slots
from longshore.core.capacity import pool_ahead, pool_slots
from longshore.core.key_words import fair_words, full_words
from longshore.core.lanes import lane_of
from longshore.core.lifecycle import TERMINAL
from longshore.core.limits import RESERVED_PREFIX
from longshore.core.resources import has, in_words, lacking, split
from longshore.core.timing import SNOOZED, span
from longshore.core.turns import may_hang, split_kind
from longshore.core.waits import worth_telling
from longshore.model.fair import FairPlace
from longshore.model.group import GATE, MAP, NOT_RUN, Condition, GroupState, NodeFacts
from longshore.model.job import Job, JobState
from longshore.model.limits import KeyView
from longshore.model.program import CONTAINER_KIND, FREE_KINDS
from longshore.model.worker import Lane, Pool, WorkerView, slot_words


class HeldBack(StrEnum):
    """What holds a ready job back although slots are free (`start_rules` of each store)."""

    PAUSED_QUEUE = "paused_queue"


class Facts(Struct, frozen=True, kw_only=True):
    """What `why` needs beside the job, read at one moment."""

    held_back: HeldBack | None
    workers: tuple[WorkerView, ...]
    ahead: int
    now: datetime
    lane_limit: int | None = None
    """Set if the job's lane is past this limit: no dispatcher looks there."""
    is_attended_here: bool = False
    """Whether the dispatcher that says why attends the job's worker: then it knows what waits."""
    supervisor_trouble: str = ""
    """Why the workers beside the dispatcher do not start; empty if they do."""
    node: NodeFacts | None = None
    """Its place in its group, if it has one."""
    full_keys: tuple[KeyView, ...] = ()
    """Those of its keys that let nothing more begin."""
    fair: FairPlace | None = None
    """Where it stands among the jobs of its fair key, if it has one and is ready."""


_OWN_POOLS = {Pool.COROUTINE, Pool.PROCESS}
"""Each of Longshore's own workers has these; other workers have pools as they like."""


_PAUSED_TURN = "its actor is paused; resume the actor to let it go on"


def why(job: Job, facts: Facts) -> str:
    """One or two sentences that say why a job is in its state, and what would change that."""
    match job.state:
        case JobState.WAITING:
            return _PAUSED_TURN if job.options.turn else _waiting(facts.node)
        case JobState.DELAYED:
            return _delayed(job, facts) + _expiry(job, facts)
        case JobState.READY:
            return _ready(job, facts) + _expiry(job, facts)
        case JobState.RUNNING:
            return _running(job, facts) + _waits(job)
        case JobState.CANCELLING:
            return f"being cancelled; {_place(job, facts)} was told to stop it"
        case JobState.SUCCEEDED:
            return f"succeeded{_ended(job)}{_taken_over(facts.node)}{_waits(job)}"
        case JobState.FAILED:
            return f"failed{_ended(job)}: {_error(job)}{_waits(job)}"
        case JobState.CANCELLED:
            return f"cancelled{_last_words(job)}{_waits(job)}"
        case JobState.DEPENDENCY_FAILED:
            cause = "a job it depends on failed" if job.error is None else _error(job)
            return f"not run{_end_time(job)}, because {cause}"
        case JobState.SKIPPED:
            return _skipped(job)
        case _:
            assert_never(job.state)


def _waits(job: Job) -> str:
    """How long a job waited, and for what, if it is worth telling."""
    words = worth_telling(job.waited)
    return f"; it {words}" if words else ""


def _skipped(job: Job) -> str:
    info = job.history[-1].info if job.history else ""
    if info:
        return f"{info}{_end_time(job)}"
    return f"not run, because the condition it waited for can no longer hold{_end_time(job)}"


def _taken_over(node: NodeFacts | None) -> str:
    if node is None or node.taken_from is None:
        return ""
    run = "" if node.group.run_of is None else f" of group {node.group.run_of}"
    return f": taken over from job {node.taken_from}{run}, which this group is a new run of"


def _waiting(node: NodeFacts | None) -> str:
    if node is None:
        return "waiting for jobs it depends on"
    if node.group.state is GroupState.STAGING:
        return f"its group '{node.group.name}' is not complete: its submitter has not sent all jobs"
    if node.group.state is GroupState.PAUSED:
        resume = f"`longshore group resume {node.group.number}`"
        return f"its group '{node.group.name}' is paused; {resume} lets it go on"
    if node.group.state is GroupState.CANCELLING:
        return f"its group '{node.group.name}' is being cancelled, and it will be"
    if not node.waits_for:  # it may not have been told yet
        return "what it depends on has ended; a dispatcher is about to decide what becomes of it"
    return f"{_awaited(node)}: {_others(node)}"


def _awaited(node: NodeFacts) -> str:
    count = f"{node.unmet:,} of {node.after:,}"
    match node.on:
        case Condition.SUCCEEDED:
            return f"waiting for {count}"
        case Condition.ENDED:
            return f"waiting for {count} to end, however they do"
        case Condition.FAILED:
            return f"waiting for a failure, and {count} have not ended"
        case _:
            assert_never(node.on)


def _others(node: NodeFacts) -> str:
    """What a job waits for, each with its state."""
    shown = ", ".join(f"'{key}' ({_state(state)})" for key, state in node.waits_for)
    more = node.unmet - len(node.waits_for)
    return shown + (f" and {more:,} more" if more > 0 else "")


def _state(state: JobState) -> str:
    """The state of something that a job waits for."""
    if state in TERMINAL:
        return f"{state.value}, but jobs below it have not ended"
    return state.value


def _delayed(job: Job, facts: Facts) -> str:
    until = f"until {_clock(job.run_at)}" if job.run_at else "for a while"
    left_s = (job.run_at - facts.now).total_seconds() if job.run_at else 0.0
    left = f" ({span(left_s)} from now)" if left_s > 0 else " (any moment now)"
    last = job.history[-1].info if job.history else ""
    if last.startswith(SNOOZED):
        return f"delayed {until}{left} by itself: {last}"
    if job.failures and job.error is not None:
        name = job.error.type or job.error.reason.value
        return f"delayed {until}{left} by its {ordinal(job.failures)} retry, after {name}: " + (
            _first_line(job.error.message)
        )
    return f"delayed {until}{left}, as asked for when it was submitted"


def _ready(job: Job, facts: Facts) -> str:
    if facts.held_back is not None and job.kind not in NOT_RUN:
        return _held_back(job, facts.held_back)
    if facts.full_keys:
        return "; ".join(map(full_words, facts.full_keys))
    lane = lane_of(job.queue, job.kind, job.target)
    cause = cause_of(lane, facts.workers, past_limit=facts.lane_limit is not None)
    able = able_workers(lane, facts.workers)
    match cause:
        case Cause.GATE | Cause.DISPATCHER:
            return _not_run(job, facts)
        case Cause.PAUSED_QUEUE:
            return _held_back(job, HeldBack.PAUSED_QUEUE)
        case Cause.LANE_LIMIT:
            return _past_limit(job, facts)
        case Cause.NO_WORKER:
            if facts.supervisor_trouble:
                return f"no worker serves kind '{job.kind}': {facts.supervisor_trouble}"
            return _no_worker(job, facts.workers)
        case Cause.SILENT_DISPATCHER:
            return f"{_names(able)} could run it, but {_silence(able[0])}"
        case Cause.DRAINING:
            trouble = (
                facts.supervisor_trouble and f", and others do not come: {facts.supervisor_trouble}"
            )
            kind = f"every worker that serves kind '{job.kind}'"
            return f"{kind} is draining ({_names(able)}){trouble}"
        case Cause.RESOURCES:
            return _for_resources(job, able)
        case Cause.NO_SLOTS | Cause.BUSY | Cause.STARTING | Cause.LIMIT:
            return _for_slots(job, facts, lane, cause)
        case _:
            assert_never(cause)


def _past_limit(job: Job, facts: Facts) -> str:
    return (
        f"no dispatcher looks at kind '{job.kind}' in queue '{job.queue}' with target "
        f"'{job.target}': max_lanes is {facts.lane_limit or 0:,}, and there are as many others; "
        "put what varies into the arguments, or raise max_lanes"
    )


def _for_slots(job: Job, facts: Facts, lane: Lane, cause: Cause) -> str:
    """Whether a job that workers could run waits for a slot of theirs, or has one soon."""
    able = able_workers(lane, facts.workers)
    taking = [worker for worker in able if not worker.draining]
    pool = taking[0].info.kinds[job.kind].pool
    if cause is Cause.NO_SLOTS:
        return f"{_names(taking)} can run no '{job.kind}', with 0 {slot_words(pool)[1]}"
    ahead = f"; {_ahead(facts.ahead)} before it in its lane" if facts.ahead else ""
    if facts.fair is not None:
        ahead += f"; {fair_words(facts.fair)}"
    if cause is Cause.STARTING:
        return f"about to be given to {_names(taking)}{ahead}"
    slots, _ = taken_slots(lane, able)
    return f"{_all_of(pool, slots, _names(taking))} busy{ahead}{_more_at_once(taking[0], pool)}"


def _for_resources(job: Job, able: Sequence[WorkerView]) -> str:
    """What is short on the workers that could run a job if others took less."""
    taking = [worker for worker in able if not worker.draining]
    short = "; ".join(
        f"{_names([worker])}: {', '.join(lacking(left_of(worker), job.options.resources))}"
        for worker in taking[:3]
    )
    more = f"; and {len(taking) - 3:,} more workers" if len(taking) > 3 else ""
    wanted = in_words(job.options.resources)
    return f"it takes {wanted}, which other jobs do not leave ({short}{more})"


def _not_run(job: Job, facts: Facts) -> str:
    """Why a node that no worker runs is ready."""
    if job.kind != GATE:
        what = "become one job for each element of its list" if job.kind == MAP else "be counted"
        return f"about to {what}, by a dispatcher"
    if facts.node is None:
        return "waiting until somebody opens this gate"
    number, key = facts.node.group.number, facts.node.key
    return (
        f"waiting until somebody opens this gate: `longshore group open {number} {key}`, with "
        "--value JSON if the jobs after it want one"
    )


def _held_back(job: Job, held_back: HeldBack) -> str:
    match held_back:
        case HeldBack.PAUSED_QUEUE:
            resume = f"`longshore queues resume {job.queue}`"
            return f"queue '{job.queue}' is paused; {resume} lets it go on"
        case _:
            assert_never(held_back)


def _expiry(job: Job, facts: Facts) -> str:
    """What happens if the job does not begin in time; empty if it does not expire."""
    if job.deadline_at is None:
        return ""
    left_s = (job.deadline_at - facts.now).total_seconds()
    if left_s <= 0:
        return "; it has expired, and fails any moment now"
    nobody = "nobody opens it" if job.kind == GATE else "no worker takes it"
    return f"; expires in {span(left_s)} if {nobody}"


def _no_worker(job: Job, workers: Sequence[WorkerView]) -> str:
    if job.kind in FREE_KINDS and not any(job.kind in worker.info.kinds for worker in workers):
        engine = " that has an engine" if job.kind == CONTAINER_KIND else ""
        return f"no worker runs '{job.kind}' jobs: start one with --exec{engine}"
    if job.kind.startswith(RESERVED_PREFIX) and job.kind not in FREE_KINDS:
        return (
            "no gateway is connected; start one: `longshore gateway`, or `longshore up` with HTTP"
        )
    workers = [worker for worker in workers if not worker.info.gateway]
    if not workers:
        return f"no worker is connected; start one that serves '{job.kind}': `longshore worker`"
    kinds = sorted({kind for worker in workers for kind in worker.info.kinds})
    if job.kind not in kinds and (job.options.turn or job.options.reads):
        return _no_version(job, [worker for worker in workers if worker.alive])
    if job.kind not in kinds:
        near = get_close_matches(job.kind, kinds, n=1)
        hint = f" (nearest: '{near[0]}')" if near else f" (they serve: {_some(kinds)})"
        return f"no worker serves kind '{job.kind}'{hint}"
    same_kind = [worker for worker in workers if job.kind in worker.info.kinds]
    targets = sorted({worker.info.target for worker in same_kind})
    wanted, shape = split(job.target)
    if wanted and wanted not in targets:
        have = _some([target or "none" for target in targets])
        return f"no worker of kind '{job.kind}' has target '{wanted}' (there is: {have})"
    alike = [worker for worker in same_kind if wanted in ("", worker.info.target)]
    if alike and not any(has(worker.info.resources, shape) for worker in alike):
        best = min(alike, key=lambda one: len(lacking(one.info.resources, shape)))
        return (
            f"no worker of kind '{job.kind}' is large enough: on {_names([best])}, "
            f"{', '.join(lacking(best.info.resources, shape))}. Start one with --resources, or "
            "submit it with less"
        )
    return f"no worker of kind '{job.kind}' takes jobs from queue '{job.queue}'"


def _no_version(job: Job, workers: Sequence[WorkerView]) -> str:
    """Nobody serves the version of an actor's state, or its type."""
    type, version = split_kind(job.kind)
    served = {
        worker.info.id: max(known)
        for worker in workers
        if (known := [n for one in worker.info.kinds for t, n in [split_kind(one)] if t == type])
    }
    if not served:
        types = sorted({split_kind(one)[0] for w in workers for one in w.info.kinds if "@" in one})
        near = get_close_matches(type, types, n=1)
        there = f" (nearest: '{near[0]}')" if near else ""
        return f"no live worker serves actors of type '{type}'{there}; start one that has the class"
    most = max(served.values())
    best = [worker for worker in workers if served.get(worker.info.id) == most]
    return (
        f"its state is of version {version}, and no live worker serves that: {_names(best)} "
        f"serves up to version {most} of '{type}'. Start one that has the newer class"
    )


def _running(job: Job, facts: Facts) -> str:
    if job.held_behind is not None:
        running = f"{job.held_behind} running job{'' if job.held_behind == 1 else 's'}"
        return f"held ahead by {_place(job, facts)}, behind {running}"
    since = ""
    ran_s = 0.0
    if job.started_at is not None:
        ran_s = (facts.now - job.started_at).total_seconds()
        since = f" for {span(ran_s)}"
    attempt = f", {ordinal(job.attempt)} attempt" if job.attempt > 1 else ""
    step = f"; {job.step}" if job.step else ""
    worker = _worker(job, facts)
    silence = (
        f"; {_silence(worker)}, and its jobs go to others" if worker and worker.silent_s else ""
    )
    perhaps = _perhaps_held(job, facts, worker)
    hint = f". {_hangs(job)}" if may_hang(job.options, ran_s) else ""
    return f"running on {_place(job, facts)}{since}{attempt}{perhaps}{step}{silence}{hint}"


def _hangs(job: Job) -> str:
    """What to do about a turn that may hang: until it ends, its actor does nothing else."""
    return (
        "If it hangs, nothing ends it, as it has no timeout_s: "
        f"`longshore cancel {job.number}` does, and leaves its actor failed"
    )


def _perhaps_held(job: Job, facts: Facts, worker: WorkerView | None) -> str:
    """What another dispatcher than the worker's own must add if the worker holds jobs ahead."""
    if worker is None or facts.is_attended_here or job.kind not in worker.info.kinds:
        return ""
    pool = worker.info.kinds[job.kind].pool
    ahead, slots = pool_ahead(worker, pool), pool_slots(worker, pool)
    if not ahead:
        return ""
    words = slot_words(pool)[slots != 1]
    return f", or held ahead there: it has {slots + ahead} jobs for {slots} {words}"


def _silence(worker: WorkerView) -> str:
    return (
        f"the dispatcher that attends it has shown no sign of life for {span(worker.silent_s)}; "
        "if the worker does not join another one soon, it is declared lost"
    )


def _all_of(pool: str, count: int, whose: str) -> str:
    one, many = slot_words(pool)
    return f"all {count} {many} of {whose} are" if count > 1 else f"the only {one} of {whose} is"


def _more_at_once(worker: WorkerView, pool: str) -> str:
    """What makes a worker run more jobs at once; empty if it is not one of Longshore's own."""
    if pool not in tuple(Pool) or not worker.info.pools.keys() >= _OWN_POOLS:
        return ""
    setting = f"{slot_words(pool)[1]}=…"
    if pool == Pool.PROCESS:
        setting += ', or isolation="thread" for a plain def,'
    return f"; {setting} runs more at once"


def _place(job: Job, facts: Facts) -> str:
    if worker := _worker(job, facts):
        return _names([worker])
    return f"worker {job.worker}" if job.worker else "its worker"


def _worker(job: Job, facts: Facts) -> WorkerView | None:
    return next((worker for worker in facts.workers if worker.info.id == job.worker), None)


def _names(workers: Sequence[WorkerView]) -> str:
    if len(workers) == 1:
        return workers[0].info.name or str(workers[0].info.id)
    return f"{len(workers)} workers"


def _ended(job: Job) -> str:
    attempts = f" on its {ordinal(job.attempt)} attempt" if job.attempt > 1 else ""
    return f"{_end_time(job)}{attempts}"


def _error(job: Job) -> str:
    if job.error is None:
        return "no reason was recorded"
    message = _first_line(job.error.message)
    return f"{job.error.type}: {message}" if job.error.type else message


def _last_words(job: Job) -> str:
    info = job.history[-1].info if job.history else ""
    return f"{_end_time(job)} ({info})" if info else _end_time(job)


def _end_time(job: Job) -> str:
    return f" at {_clock(job.ended_at)}" if job.ended_at else ""


def _ahead(count: int) -> str:
    return "1,000 or more jobs" if count >= 1000 else f"{count} job{'s' if count > 1 else ''}"


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
