"""Hides payloads, and what the headers of callbacks hold, from askers who may not see them."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from longshore.core.access import Asker, sees_headers, shown_watchers, without_payloads
from longshore.model.actor import (
    Actor,
    ActorPage,
    ActorTerms,
    MailView,
    Reply,
    Timer,
    TurnView,
    UndeliveredSend,
)
from longshore.model.fileset import FilesetVersion, FilesetView
from longshore.model.group import Group, GroupPart
from longshore.model.job import Ended, Job, JobPage, Options, Submission
from longshore.model.schedule import NewSchedule, Schedule, ScheduleView
from longshore.payload.callback_jobs import without_headers
from longshore.wire.actor_messages import SendAnswer

_NIL: Final = b"\xc0"


def hidden_from(asker: Asker, answer: Any) -> Any:
    """What OK carries in answer, without what who asks may not see.

    Who sees no payloads sees no headers either.
    """
    return answer if sees_headers(asker) else _hidden(answer, asker.scope.payloads)


def _hidden(answer: Any, payloads: bool) -> Any:
    match answer:
        case list() | tuple():
            return [_hidden(one, payloads) for one in answer]
        case Job():
            return _job(answer, payloads)
        case JobPage():
            jobs = tuple(_job(one, payloads) for one in answer.jobs)
            return structs.replace(answer, jobs=jobs)
        case Group():
            watchers = shown_watchers(answer.watchers, payloads=payloads)
            return structs.replace(answer, watchers=watchers)
        case Actor():
            return _actor(answer, payloads)
        case ActorPage():
            actors = tuple(_actor(one, payloads) for one in answer.actors)
            if not payloads:
                actors = tuple(structs.replace(one, listed={}) for one in actors)
            return structs.replace(answer, actors=actors)
        case Schedule():
            return structs.replace(answer, new=_new_schedule(answer.new, payloads))
        case ScheduleView():
            return structs.replace(answer, schedule=_hidden(answer.schedule, payloads))
        case _:
            return answer if payloads else _without_payloads(answer)


def _new_schedule(new: NewSchedule, payloads: bool) -> NewSchedule:
    """What was declared, without what may not be seen of its jobs."""
    if new.job is not None:
        new = structs.replace(new, job=_submission(new.job, payloads))
    if new.group is not None:
        new = structs.replace(new, group=_group_part(new.group, payloads))
    return new


def _group_part(part: GroupPart, payloads: bool) -> GroupPart:
    watchers = shown_watchers(part.head.watchers, payloads=payloads)
    jobs = [_submission(node.job, payloads) for node in part.nodes]
    nodes = [structs.replace(node, job=job) for node, job in zip(part.nodes, jobs, strict=True)]
    return GroupPart(structs.replace(part.head, watchers=watchers), part.first, tuple(nodes))


def _submission(job: Submission, payloads: bool) -> Submission:
    watchers = shown_watchers(job.options.watchers, payloads=payloads)
    hidden = b"" if job.options.raw else _NIL
    return structs.replace(
        job,
        args=job.args if payloads else hidden,
        unique_key=job.unique_key if payloads else None,
        options=structs.replace(job.options, watchers=watchers),
    )


def _without_payloads(answer: Any) -> Any:
    match answer:
        case TurnView():
            return structs.replace(answer, state=_NIL, timers=_timers(answer.timers))
        case Ended() | Reply():
            return structs.replace(answer, result=None)
        case SendAnswer() if answer.reply is not None:
            return structs.replace(answer, reply=structs.replace(answer.reply, result=None))
        case MailView() | UndeliveredSend():
            return structs.replace(answer, args=_NIL)
        case FilesetVersion():
            # The hash of few or short files tells what is in them: one can try what it may be.
            return structs.replace(answer, manifest=b"")
        case FilesetView():
            return structs.replace(answer, latest=_without_payloads(answer.latest))
        case _:
            return answer


def _job(job: Job, payloads: bool) -> Job:
    job = structs.replace(job, options=_options(job.options, payloads))
    return without_headers(job) if payloads else without_payloads(job)


def _actor(actor: Actor, payloads: bool) -> Actor:
    actor = structs.replace(actor, terms=_terms(actor.terms, payloads))
    if payloads:
        return actor
    hidden = dict.fromkeys(actor.listed, "null")
    state = _NIL if actor.state else b""  # a list has no states
    return structs.replace(actor, state=state, timers=_timers(actor.timers), listed=hidden)


def _terms(terms: ActorTerms, payloads: bool) -> ActorTerms:
    """The terms of an actor: the job that hears of its commits may have watchers."""
    terms = structs.replace(terms, options=_options(terms.options, payloads))
    if terms.history is None:
        return terms
    options = _options(terms.history.options, payloads)
    return structs.replace(terms, history=structs.replace(terms.history, options=options))


def _options(options: Options, payloads: bool) -> Options:
    if not options.watchers:
        return options
    watchers = shown_watchers(options.watchers, payloads=payloads)
    return structs.replace(options, watchers=watchers)


def _timers(timers: tuple[Timer, ...]) -> tuple[Timer, ...]:
    return tuple(structs.replace(timer, args=b"") for timer in timers)
