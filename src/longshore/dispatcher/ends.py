"""How attempts end: decides what a report means, has it stored, then acknowledges it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import Random
from typing import TypeVar, assert_never
from uuid import UUID

from msgspec import DecodeError, Raw, Struct, structs
from msgspec.msgpack import Decoder

from longshore.config import DispatcherSettings
from longshore.core.actor_limits import check_listed, check_message
from longshore.core.effects import refused_item
from longshore.core.group_limits import check_growth, check_part, naming
from longshore.core.growth import added, refused
from longshore.core.limits import MAX_DURATION_S, MAX_NAME_CHARS, check_submission
from longshore.core.publishing import check_versions
from longshore.core.recovery import can_recover, recovering
from longshore.core.timing import (
    settle_crash,
    settle_failure,
    settle_refused_retry,
    settle_skip,
    settle_snooze,
)
from longshore.core.turns import MAX_OUTBOX, MAX_TURN_GROUP, check_turn
from longshore.core.usage import checked, noted
from longshore.dispatcher.alarms import Alarms
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.meter import Meter
from longshore.errors import InvalidInput, LongshoreError
from longshore.model.actor import Reply
from longshore.model.attempt import Attempt
from longshore.model.callback import CALLBACK_KIND
from longshore.model.ends import (
    WITH_OUTBOX,
    Cancelled,
    Crashed,
    End,
    Failed,
    NotBegun,
    ReadDone,
    Released,
    Retried,
    Skipped,
    Snoozed,
    Succeeded,
    TurnTaken,
)
from longshore.model.fileset import NewVersion
from longshore.model.group import GATE, MAP, NOT_RUN, GroupPart
from longshore.model.job import Finished, JobError, JobState, Reason, Submission, Verdict
from longshore.model.reports import (
    CancelReport,
    CrashReport,
    FailureReport,
    NotBegunReport,
    OutboxGroup,
    OutboxItem,
    OutboxJob,
    OutboxMessage,
    OutboxNode,
    OutboxReply,
    ReleaseReport,
    Report,
    SkipReport,
    SnoozeReport,
    SuccessReport,
    TurnReport,
)
from longshore.model.usage import Usage
from longshore.payload.group_references import check_added, check_dependencies
from longshore.payload.maps import check_map, pattern_of
from longshore.payload.values import within
from longshore.wire.dispatcher_side import Sent, Session
from longshore.wire.messages import Ack, AttemptKey

Unsuccessful = (
    FailureReport
    | CrashReport
    | CancelReport
    | ReleaseReport
    | SnoozeReport
    | SkipReport
    | NotBegunReport
)
Partial = TypeVar("Partial", Failed, Crashed, Skipped)
Acknowledge = Callable[[Session, Ack], None]

MAX_ERROR_CHARS = 64 * 1024
MAX_NOTES = 10
_ASKED = "longshore.Retry"
_MAY_BE_ADDED = frozenset({MAP, GATE})
_NOT_OF_TURNS = (SuccessReport, SnoozeReport, SkipReport)
_NO_TURN = JobError(
    Reason.INVALID_RESULT,
    "it is a turn of an actor, but did not end like one: a handler sets a timer instead of a "
    "snooze, and has nothing to skip",
)


class _OfTurn(Struct, gc=False):
    """Whose turn it is: the beginning of a `TurnInput`."""

    actor: UUID
    turn: int
    events: tuple[Raw, ...] = ()


_of_turn = Decoder(_OfTurn)


def _of_read(end: End) -> End:
    """The end of an attempt that reads an actor: whoever asked gets a result or an error.

    An attempt that was lost or handed back is no end: it is tried again.
    """
    match end:
        case Succeeded():
            reply = Reply(end.job, end.result)
        case Failed() | Retried() | Crashed():
            reply = Reply(end.job, error=end.error)
        case Cancelled() | Skipped() | Snoozed():
            error = JobError(Reason.CANCELLED, end.info or "the read was cancelled")
            reply = Reply(end.job, error=error)
        case _:
            return end
    return ReadDone(end.job, end.token, reply=reply)


class Decisions:
    """Decides what a worker's reports mean for their jobs."""

    def __init__(self, settings: DispatcherSettings, random: Random) -> None:
        self._settings = settings
        self._max_value_bytes = settings.max_value_bytes
        self._random = random

    def decide(
        self,
        report: Report,
        claimed: Attempt | None,
        by: str = "",
        worker: UUID | None = None,
        *,
        recovers: bool = False,
    ) -> End:
        """The end for the store to record, with what its attempt used (see `_decided`)."""
        end = self._decided(report, claimed, by, worker, recovers=recovers)
        usage = _usage(report)
        return end if usage is None else structs.replace(end, info=noted(end.info, usage))

    def _decided(
        self,
        report: Report,
        claimed: Attempt | None,
        by: str,
        worker: UUID | None,
        *,
        recovers: bool,
    ) -> End:
        """The end for the store to record; if `worker` is given, only if it owns the job.

        An attempt that is not placed here has no `claimed`: it is late, or another worker's. With
        `recovers`, its actor may recover if it has failed for good.
        """
        is_turn = claimed is not None and claimed.options.turn
        is_read = claimed is not None and claimed.options.reads
        if isinstance(report, SuccessReport) and not (is_turn or is_read):
            return self._succeeded(report, by, worker)
        if isinstance(report, TurnReport):
            end = self._taken(report, claimed)
        elif is_turn and isinstance(report, _NOT_OF_TURNS):
            end = Failed(report.job, report.token, _NO_TURN, info=_NO_TURN.message)
        elif isinstance(report, SuccessReport):
            end = _of_read(self._succeeded(report, by, worker))
        else:
            end = self._unsuccessful(report, claimed)
            if is_read:
                end = _of_read(end)
        if recovers and claimed is not None and claimed.options.turn:
            end = recovering(claimed, end, _events_of(claimed))
        return structs.replace(end, by=by, worker=worker, ran_s=_ran_s(report))

    def _taken(self, report: TurnReport, claimed: Attempt | None) -> End:
        """What a turn's report means. One that does not fit to its job fails the job."""
        if claimed is None:
            # Nobody here knows whose turn it is. If it is still its worker's, it runs again.
            return Released(report.job, report.token, info="its dispatcher does not know the turn")
        if not claimed.options.turn:
            error = JobError(Reason.INVALID_RESULT, "it is no turn of an actor, but ended like one")
            return Failed(report.job, report.token, error, info=error.message)
        try:
            of = _of_turn.decode(claimed.args)
            self._check_turn(report)
        except (LongshoreError, DecodeError) as wrong:
            error = JobError(Reason.INVALID_RESULT, f"the turn leaves what cannot be: {wrong}")
            return Failed(report.job, report.token, error, info=error.message)
        return TurnTaken(
            report.job,
            report.token,
            actor=of.actor,
            number=of.turn,
            turn=report.turn,
            outbox=report.outbox,
        )

    def _check_turn(self, report: TurnReport) -> None:
        most_bytes = self._max_value_bytes
        check_turn(report.turn, most_bytes, MAX_DURATION_S)
        check_listed("the actor", report.turn.listed or {})
        if len(report.outbox) > MAX_OUTBOX:
            raise InvalidInput(
                f"it sends {len(report.outbox):,} things; {MAX_OUTBOX:,} are allowed"
            )
        for item in report.outbox:
            self._check_item(item)
            if isinstance(item, OutboxNode):
                raise InvalidInput("it adds a job to its group, but an actor is in none")

    def _check_item(self, item: OutboxItem) -> None:
        """Raises if something in an outbox cannot be; what a job adds is checked elsewhere."""
        most_bytes = self._max_value_bytes
        match item:
            case OutboxJob(job=job):
                self._check_sent(job)
            case OutboxMessage(message=message):
                check_message(message, most_bytes)
            case OutboxReply(reply=reply):
                within(reply.result or b"", "a reply", most_bytes)
            case OutboxGroup(part=part):
                self._check_group(part)
            case OutboxNode():
                pass
            case _:
                assert_never(item)

    def _check_group(self, part: GroupPart) -> None:
        """Raises if a turn submits a group that cannot be."""
        head, edges = part.head, sum(len(node.after) for node in part.nodes)
        if part.first or len(part.nodes) != head.jobs or head.jobs > MAX_TURN_GROUP:
            raise InvalidInput(
                f"group '{head.name}' has {head.jobs:,} jobs; a turn submits a whole group of at "
                f"most {MAX_TURN_GROUP:,}. Let a job of the group add the others, or use a map"
            )
        check_part(part, edges, self._settings.max_group_jobs, self._settings.max_group_edges)
        check_dependencies(part)
        for node in part.nodes:
            with naming(head, node.key):
                self._check_sent(node.job, NOT_RUN)
                if node.job.kind == MAP:
                    check_map(node.job)
                    check_submission(pattern_of(node.job))

    def _unsuccessful(self, report: Unsuccessful, claimed: Attempt | None) -> End:
        match report:
            case CancelReport():
                return Cancelled(report.job, report.token)
            case NotBegunReport():
                return NotBegun(report.job, report.token)
            case ReleaseReport():
                return Released(report.job, report.token, info="handed back by its worker")
            case SkipReport(note=note):
                return _partly(settle_skip(report.key, note[:MAX_ERROR_CHARS]), report)
            case SnoozeReport() if claimed:
                return settle_snooze(claimed, report.after_s, report.note[:MAX_ERROR_CHARS])
            case SnoozeReport():
                return Snoozed(report.job, report.token)
            case FailureReport() | CrashReport() if claimed is None:
                end = Failed(report.job, report.token, _bounded(report.error))
                return _partly(end, report)
            case CrashReport(error=error):
                crashed = settle_crash(claimed, _bounded(error), self._settings.crash_limit)
                return _partly(crashed, report)
            case FailureReport(error=error):
                return self._failed(claimed, _bounded(error), report)
            case _:
                assert_never(report)

    def _succeeded(self, report: SuccessReport, by: str, worker: UUID | None) -> Succeeded | Failed:
        job, token, result, limit = report.job, report.token, report.result, self._max_value_bytes
        ran_s = None if report.ran_s is None else _ran_s(report)
        if result is not None and len(result) > limit:
            message = f"the result takes {len(result):,} bytes, more than max_value_bytes"
            error = JobError(Reason.INVALID_RESULT, f"{message} ({limit:,})")
            return Failed(job, token, error, by=by, info=message, worker=worker, ran_s=ran_s)
        versions = report.versions
        if versions and (why := _wrong_versions(versions)):
            error = JobError(Reason.INVALID_RESULT, why)
            return Failed(job, token, error, by=by, info=why, worker=worker, ran_s=ran_s)
        if not report.outbox:
            return Succeeded(job, token, result, (), versions, by=by, worker=worker, ran_s=ran_s)
        outbox, info = self._sound(report.outbox)
        more = outbox, versions
        end = Succeeded(job, token, result, *more, by=by, info=info, worker=worker, ran_s=ran_s)
        why = self._wrong_growth(added(end))
        return refused(end, why) if why else end

    def _wrong_growth(self, nodes: Sequence[OutboxNode]) -> str:
        """What is wrong with the jobs that an attempt adds to its group; empty if nothing is."""
        try:
            if nodes:
                check_growth(nodes)
                check_added(nodes)
            for node in nodes:
                self._check_sent(node.job, _MAY_BE_ADDED)
                if node.job.kind == MAP:
                    check_map(node.job)
                    check_submission(pattern_of(node.job))
        except LongshoreError as error:
            return f"it adds jobs that cannot be: {error}"
        return ""

    def _check_sent(self, job: Submission, built_in: Collection[str] = ()) -> None:
        check_submission(job, built_in)
        within(job.args, f"the arguments of job '{job.kind}'", self._max_value_bytes)

    def _sound(self, outbox: tuple[OutboxItem, ...]) -> tuple[tuple[OutboxItem, ...], str]:
        """The jobs of an outbox that are valid, and what is wrong with the others.

        Those that it adds to its group are checked together.
        """
        sound, notes = [], []
        for index, item in enumerate(outbox):
            try:
                self._check_item(item)
                if isinstance(item, OutboxReply | OutboxGroup):
                    raise InvalidInput("only a turn of an actor replies, or submits a group")
                sound.append(item)
            except LongshoreError as error:
                notes.append(refused_item(index, str(error)))
        if len(notes) > MAX_NOTES:
            notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES:,} more"]
        return tuple(sound), "; ".join(notes)

    def _failed(self, claimed: Attempt, error: JobError, report: FailureReport) -> Failed | Retried:
        luck, after_s = self._random.random(), report.retry_after_s
        end = settle_failure(
            claimed,
            error,
            luck,
            final=report.final,
            after_s=after_s,
            most_attempts=report.most_attempts,
        )
        asked = _asks_for_a_retry(error, report) and claimed.kind != CALLBACK_KIND
        if isinstance(end, Failed) and asked:
            end = settle_refused_retry(claimed, error)
        return _partly(end, report) if isinstance(end, Failed) else end


def _wrong_versions(versions: Sequence[NewVersion]) -> str:
    """What is wrong with the versions that an attempt publishes; empty if nothing is."""
    try:
        check_versions(versions)
    except InvalidInput as error:
        return f"it publishes what cannot be: {error}"
    return ""


def _partly(end: Partial, report: FailureReport | CrashReport | SkipReport) -> Partial:
    """The end, with the partial versions that it publishes, if these can be."""
    if not report.versions or _wrong_versions(report.versions):
        return end
    made = tuple(structs.replace(one, partial=True) for one in report.versions)
    return structs.replace(end, versions=made)


def _events_of(attempt: Attempt) -> int:
    """How many events a turn has; 0 if that is not known."""
    try:
        return len(_of_turn.decode(attempt.args).events)
    except DecodeError:
        return 0


def _usage(report: Report) -> Usage | None:
    """What the attempt used, if its worker says so and it can be."""
    return None if isinstance(report, NotBegunReport) else checked(report.usage)


def _ran_s(report: Report) -> float | None:
    """How long the attempt ran, if it ran and its worker says so. A worker may send anything."""
    ran_s = None if isinstance(report, NotBegunReport) else report.ran_s
    return ran_s if ran_s is not None and 0 <= ran_s <= MAX_DURATION_S else None


def _bounded(error: JobError) -> JobError:
    """The error, cut to a size that can be kept and shown."""
    if len(error.message) + len(error.type) + len(error.traceback) <= MAX_ERROR_CHARS:
        return error
    return JobError(
        error.reason,
        error.message[:MAX_ERROR_CHARS],
        error.type[:MAX_NAME_CHARS],
        error.traceback[-MAX_ERROR_CHARS:],
    )


def _asks_for_a_retry(error: JobError, report: FailureReport) -> bool:
    """Whether the job's own code asked for a retry."""
    if report.final or error.reason is not Reason.RAISED:
        return False
    return report.retry_after_s is not None or error.type == _ASKED


class Ends:
    """Takes reports, has the ends recorded, and acknowledges them."""

    def __init__(
        self,
        environment: Environment,
        commits: Commits,
        alarms: Alarms,
        acknowledge: Acknowledge,
        ran: Callable[[str, float], None],
        meter: Meter | None = None,
        used: Callable[[str, Usage], None] = lambda kind, usage: None,
        took: Callable[[Attempt, End, float], None] = lambda attempt, end, seconds: None,
    ) -> None:
        self._meter = meter
        self._used = used
        self._took = took
        self._ran = ran
        self._decisions = Decisions(environment.settings, environment.random)
        self._commits = commits
        self._due, self._actors = alarms.due, alarms.actors
        self._acknowledge = acknowledge
        self._acks: dict[Session, tuple[list[AttemptKey], list[AttemptKey]]] = {}

    def report(self, session: Session, report: Report) -> None:
        """A worker reports an end: has it recorded and acknowledged."""
        end = self.decide(session, report)
        if end is not None:
            self.record(session, [end])

    def decide(self, session: Session, report: Report) -> End | None:
        """The end that a report means, for `record`; the slot of the attempt is free from now on.

        A repeat is dropped, with None: the ACK of the first answers it.
        """
        sent = session.sent(report.job, report.token)
        if sent is None:
            if not session.admits_stray(report.token):
                return None
            # Only the store knows whose attempt this is.
            return self._decisions.decide(report, None, session.by, session.info.id)
        if sent.reported:
            return None
        session.ended(sent)
        # The worker owns the job: the store knows its name.
        recovers = sent.claimed.options.turn and can_recover(session.info, sent.claimed.kind)
        end = self._decisions.decide(report, sent.claimed, recovers=recovers)
        if isinstance(end, WITH_OUTBOX) or self._meter is not None or sent.claimed.options.fair:
            self._note_run(session, sent, end)
        if (usage := _usage(report)) is not None:
            self._used(sent.claimed.kind, usage)
        return end

    def record(self, session: Session, ends: Sequence[End]) -> None:
        """Has ends recorded that a worker reported, and acknowledges them."""
        self._commits.finish(ends, partial(self._recorded, session))

    async def record_for(
        self, session: Session | None, report: Report, attempt: Attempt
    ) -> Verdict:
        """Has an end recorded that its worker told somebody else; answers what the store did.

        A `session` of the worker, if it is here, has a slot free from then on.
        """
        end = self._decisions.decide(report, attempt, str(attempt.worker), attempt.worker)
        recorded: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

        def on_recorded(ends: Sequence[End], answers: Sequence[Finished]) -> None:
            sent = None if session is None else session.sent(*attempt.key)
            if session is not None and sent is not None:
                session.ended(sent)
            self._ended(session, ends, answers)
            if not recorded.done():
                recorded.set_result(answers[0].verdict)

        self._commits.finish([end], on_recorded)
        return await recorded

    def _note_run(self, session: Session, sent: Sent, end: End) -> None:
        """Notes how long an attempt ran. Without a word of the worker that is since it got it."""
        ran_s, kind = end.ran_s, sent.claimed.kind
        if ran_s is None and sent.given_at is not None:
            ran_s = max(0.0, session.heard_at - sent.given_at)
        if ran_s is None or isinstance(end, NotBegun):
            return
        if isinstance(end, WITH_OUTBOX):
            self._ran(kind, ran_s)
        if sent.claimed.options.fair:
            self._took(sent.claimed, end, ran_s)
        if self._meter is not None:
            self._meter.ran(kind, ran_s)

    def end(self, end: End, session: Session | None) -> None:
        """An attempt is over, though its worker did not report it."""
        self._commits.finish([end], partial(self._ended, session))

    def _ended(
        self, session: Session | None, ends: Sequence[End], answers: Sequence[Finished]
    ) -> None:
        for end, done in zip(ends, answers, strict=True):
            self._settle(session, end, done)

    def _recorded(self, session: Session, ends: Sequence[End], answers: Sequence[Finished]) -> None:
        recorded, stale = self._acks_to(session)
        for end, done in zip(ends, answers, strict=True):
            self._settle(session, end, done)
            some = stale if done.verdict is Verdict.STALE else recorded
            some.append((end.job, end.token))

    def _settle(self, session: Session | None, end: End, done: Finished) -> None:
        sent = None if session is None else session.settled((end.job, end.token))
        if done.state is JobState.CANCELLED and sent is not None and sent.claimed.options.turn:
            # Its actor may be one that is to be removed after it.
            self._actors.set_in(0)
        if self._meter is not None:
            self._meter.ended(None if sent is None else sent.claimed.kind, end, done.verdict)
        if done.verdict is Verdict.RECORDED:
            self._mind_times(end, done.state)

    def _mind_times(self, end: End, state: JobState | None) -> None:
        """Sets the alarm for jobs that this end delayed or submitted."""
        if isinstance(end, WITH_OUTBOX):
            if end.outbox:
                self._mind_outbox(end.outbox)
            if isinstance(end, TurnTaken):
                for timer in end.turn.timers:
                    after_s = timer.every_s if timer.after_s is None else timer.after_s
                    if after_s is not None:
                        self._due.set_in(after_s)
        elif isinstance(end, Retried | Snoozed) and state is JobState.DELAYED:
            self._due.set_in(end.delay_s)

    def _mind_outbox(self, outbox: Sequence[OutboxItem]) -> None:
        jobs = [item.job for item in outbox if isinstance(item, OutboxJob | OutboxNode)]
        self._due.set_for(jobs)
        for item in outbox:
            if isinstance(item, OutboxMessage) and item.message.delay_s is not None:
                self._due.set_in(item.message.delay_s)

    def _acks_to(self, session: Session) -> tuple[list[AttemptKey], list[AttemptKey]]:
        """What the next ACK to a worker names: attempts that are recorded, and stale ones."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        known = self._acks.get(session)
        return known or self._acks.setdefault(session, ([], []))

    def _send_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for session, (recorded, stale) in acks.items():
            self._acknowledge(session, Ack(session.info.id, tuple(recorded), tuple(stale)))
