"""A dispatcher with a real socket and no store: it remembers jobs, and ends them when told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import zmq

from longshore.core.bulks import begun, planned
from longshore.errors import LongshoreError, NotFound
from longshore.links.zeromq import Router
from longshore.model.access import AskerView, Role, Scope, Token
from longshore.model.actor import ActorPage, ActorVerdict
from longshore.model.group import (
    GateVerdict,
    Group,
    GroupHead,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    Node,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.ids import derive_id
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Job,
    JobError,
    JobPage,
    JobState,
    RetryVerdict,
    Submission,
)
from longshore.model.limits import KeyView, LimitRule, Rate
from longshore.model.log import LogPage
from longshore.model.retention import Pruned
from longshore.model.worker import Capacity
from longshore.wire import access_messages as t
from longshore.wire import actor_messages as a
from longshore.wire import bulk_messages as b
from longshore.wire import codec, messages
from longshore.wire import limit_messages as ls
from longshore.wire.file_messages import BlobRequest, FileRequest
from longshore.wire.schedule_messages import ScheduleRequest
from longshore.wire.web_messages import ListWebWorkers, WebRequest

SILENT = object()
"""A reply that is not sent."""

LATER = object()
"""A reply that is sent when a job ends."""

NOW = datetime(2030, 1, 1, tzinfo=UTC)

Reply = Callable[[Any], object]


class FakeDispatcher:
    """Answers on a thread of its own. `replies` overrides what it says to a type of request."""

    def __init__(self, address: str = "tcp://127.0.0.1:*") -> None:
        self.requests: list[messages.Request] = []
        self.peers: list[bytes] = []
        self.replies: dict[type, Reply] = {}
        self.jobs: dict[UUID, Submission] = {}
        self.ended: dict[UUID, Ended] = {}
        self.groups: dict[UUID, dict[int, Node]] = {}
        self.heads: dict[UUID, GroupHead] = {}
        self._bind = address
        self._waiting: list[tuple[bytes, messages.Wait]] = []
        self._news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._bound = threading.Event()
        self._stop = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._bound.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = Router(context, self._bind, self._receive)
        self.address = self._router.address
        self._bound.set()
        await self._stop.wait()
        self._router.close()
        context.term()

    # what a test does

    def of(self, kind: type) -> list[Any]:
        """The requests of one type so far."""
        return [request for request in self.requests if isinstance(request, kind)]

    def heard(self, kind: type, count: int = 1) -> None:
        """Waits until so many requests of a type have come."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.of(kind)) >= count, timeout=30)

    def end(self, job: UUID, result: bytes | None = None, error: JobError | None = None) -> None:
        """Ends a job, well unless it is given an error."""
        state = JobState.SUCCEEDED if error is None else JobState.FAILED
        self.conclude(Ended(job, state, result, error))

    def conclude(self, ended: Ended) -> None:
        """Gives a job this outcome."""
        self._loop.call_soon_threadsafe(self._conclude, ended)

    def fall_silent(self) -> None:
        """From now on answers nothing."""
        self.replies = dict.fromkeys(messages.ANSWERS, lambda request: SILENT)

    # what it does itself

    def _receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for peer, frames in arrived:
            request = codec.from_client.decode(frames)
            with self._news:
                self.requests.append(request)
                self.peers.append(peer)
                self._news.notify_all()
            self._reply(peer, request)

    def _reply(self, peer: bytes, request: messages.Request) -> None:
        script = self.replies.get(type(request), self._answer)
        answer = script(request)
        if isinstance(answer, LongshoreError):
            refusal = messages.Err(request.rid, answer.code, str(answer))
            self._router.send(peer, codec.encode(refusal))
        elif answer is LATER and isinstance(request, messages.Wait):
            self._waiting.append((peer, request))
            self._loop.call_later(request.wait_s, self._give_up, peer, request)
        elif answer is not SILENT:
            self._router.send(peer, codec.ok(request.rid, answer))

    def _answer(self, request: messages.Request) -> object:
        match request:
            case messages.Submit():
                return self._submit(request)
            case messages.Wait():
                return self._found(request) or LATER
            case messages.Show():
                return self.view(request.job)
            case messages.Why():
                job = self.view(request.job)
                return messages.WhyAnswer(job.id, job.number, "ready", "no worker is free")
            case messages.ReadLogs():
                job = self.view(request.job)
                return LogPage(
                    lines=(), after=request.after, more=False, state=job.state, attempt=1
                )
            case messages.Cancel():
                return [
                    messages.CancelAnswer(r, _id(r), CancelVerdict.CANCELLED) for r in request.jobs
                ]
            case messages.Retry():
                return [messages.RetryAnswer(r, _id(r), RetryVerdict.RETRIED) for r in request.jobs]
            case messages.AwaitChange():
                return messages.ChangeMark(UUID(int=1), 0)
            case messages.Hello():
                return messages.HelloAnswer(1, "fake", UUID(int=1), NOW)
            case messages.ListJobs():
                return JobPage()
            case messages.ListWorkers() | messages.ListQueues() | messages.ListRunTimes():
                return ()
            case messages.ListDispatchers() | messages.Drain() | messages.ListLanes():
                return ()
            case messages.ShowCapacity():
                return Capacity(kinds=(), pools=())
            case messages.Pause() | messages.ShowKind():
                return None
            case ls.SetLimit() | ls.RemoveLimit():
                return None
            case ls.ListLimits():
                return (LimitRule("tenant=*", 5, Rate(100, 60.0, 20)),)
            case ls.ListKeys():
                return ()
            case b.PlanBulk():
                return planned(request.new, JobPage())
            case b.StartBulk():
                return begun(request.new, 1, 0, NOW)
            case b.ShowBulk() | b.StopBulk():
                raise NotFound(f"there is no bulk {request.bulk}")
            case b.ListBulks():
                return ()
            case ls.ShowKey():
                return KeyView(request.key, 5, pattern="tenant=*", held=2, holders=(7, 9))
            case messages.Prune():
                return Pruned({}, 0, True)
            case messages.SubmitGroup():
                return self._submit_group(request)
            case messages.AddToGroup():
                return self._add_to_group(request)
            case messages.ShowGroup():
                return self.group_view(request.group)
            case messages.ListGroups():
                return tuple(map(self.group_view, self.groups))
            case messages.ListNodes():
                return self._nodes(request)
            case messages.CancelGroup():
                return GroupVerdict.CANCELLING
            case messages.PauseGroup():
                return GroupVerdict.PAUSED if request.paused else GroupVerdict.RUNNING
            case messages.RetryGroup():
                return RetryPlan(UUID(int=0), request.keys or ("fetch",))
            case messages.RerunGroup():
                return self._rerun_group(request)
            case messages.OpenGate():
                return GateVerdict.OPENED
            case t.CreateToken():
                return self._token(request)
            case t.RevokeToken():
                raise NotFound(f"there is no token {request.token}")
            case t.ListTokens() | t.ListAudit():
                return ()
            case t.ShowAsker():
                return AskerView("local", Role.ADMIN, Scope())
            case ListWebWorkers():
                return ()
            case _ if isinstance(request, WebRequest):
                raise LongshoreError("this dispatcher knows no web workers")
            case _ if isinstance(request, FileRequest | BlobRequest):
                raise LongshoreError("this dispatcher knows no filesets")
            case _ if isinstance(request, ScheduleRequest):
                raise LongshoreError("this dispatcher knows no schedules")
            case _:
                return self._answer_about_actors(request)

    def _token(self, request: t.CreateToken) -> Token:
        new = request.new
        return Token(
            id=new.id,
            name=new.name,
            prefix=new.prefix,
            role=new.role,
            scope=new.scope,
            created_at=NOW,
            created_by="local",
        )

    def _answer_about_actors(self, request: a.ActorRequest) -> object:
        match request:
            case a.StartActors():
                return [a.StartAnswer(actor.id) for actor in request.actors]
            case a.Send():
                return [a.SendAnswer(message.id) for message in request.messages]
            case a.AwaitReplies() | a.ListTurns() | a.ListMail():
                return ()
            case a.ListActors():
                return ActorPage()
            case a.ListUndelivered():
                return ()
            case a.SortUndelivered() | a.ReadActor():
                return False
            case a.ShowActor():
                return NotFound("there is no actor here")
            case a.Resolve() | a.PauseActor() | a.StopActor() | a.EditActor() | a.SortMail():
                return ActorVerdict.DONE

    def _rerun_group(self, request: messages.RerunGroup) -> RunPlan:
        """Says what it would do, or takes two steps."""
        steps = [one for one in self.of(messages.RerunGroup) if one.id == request.id]
        state = GroupState.STAGING if len(steps) == 1 else GroupState.RUNNING
        run = None if request.dry_run else GroupSubmitted(request.id, 99, state, len(steps))
        return RunPlan(UUID(int=0), 1, 2, keys=request.keys or ("fetch",), run=run)

    def _submit(self, request: messages.Submit) -> list[messages.SubmitAnswer]:
        for job in request.jobs:
            self.jobs.setdefault(job.id, job)
        numbers = {id: number for number, id in enumerate(self.jobs, 1)}
        return [messages.SubmitAnswer(job.id, numbers[job.id]) for job in request.jobs]

    def _add_to_group(self, request: messages.AddToGroup) -> GroupSubmitted:
        group = request.group if isinstance(request.group, UUID) else UUID(int=request.group)
        for at, node in enumerate(request.nodes):
            self.jobs.setdefault(derive_id(request.id, at), node.job)
        return GroupSubmitted(group, 1, GroupState.RUNNING, len(request.nodes))

    def _submit_group(self, request: messages.SubmitGroup) -> GroupSubmitted:
        part = request.part
        nodes = self.groups.setdefault(part.head.id, {})
        nodes.update(enumerate(part.nodes, part.first))
        self.heads[part.head.id] = part.head
        for node in part.nodes:
            self.jobs.setdefault(node.job.id, node.job)
        whole = len(nodes) == part.head.jobs
        state = GroupState.RUNNING if whole else GroupState.STAGING
        return GroupSubmitted(part.head.id, 100, state, len(nodes))

    def group_view(self, ref: UUID | int) -> Group:
        """A submitted group as it is shown; every one has the number 100."""
        id = ref if isinstance(ref, UUID) else next(iter(self.groups))
        head = self.heads[id]
        return Group(
            id=id,
            number=100,
            name=head.name,
            state=GroupState.RUNNING,
            jobs=head.jobs,
            fail_fast=head.fail_fast,
            labels=head.labels,
            created_at=NOW,
            counts={"ready": head.jobs},
        )

    def _nodes(self, request: messages.ListNodes) -> list[NodeView]:
        nodes = self.groups[request.group]
        found = [
            NodeView(
                key=node.key,
                job=node.job.id,
                number=place,
                kind=node.job.kind,
                state=JobState.READY,
                after=tuple(nodes[one].key for one in node.after),
                on=node.on,
            )
            for place, node in sorted(nodes.items())
        ]
        return found[request.after + 1 :][: request.most]

    def view(self, ref: UUID | int) -> Job:
        """A submitted job as it is shown."""
        id = ref if isinstance(ref, UUID) else list(self.jobs)[ref - 1]
        job, ended = self.jobs[id], self.ended.get(id)
        return Job(
            id=id,
            number=list(self.jobs).index(id) + 1,
            kind=job.kind,
            queue=job.queue,
            target=job.target,
            priority=job.priority,
            state=JobState.READY if ended is None else ended.state,
            args=job.args,
            options=job.options,
            unique_key=job.unique_key,
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
            result=None if ended is None else ended.result,
            error=None if ended is None else ended.error,
        )

    def _found(self, request: messages.Wait) -> list[Ended]:
        found = [self.ended[job] for job in request.jobs if job in self.ended]
        return found if not request.all or len(found) == len(request.jobs) else []

    def _conclude(self, ended: Ended) -> None:
        self.ended[ended.id] = ended
        for peer, request in list(self._waiting):
            if self._found(request):
                self._give_up(peer, request)

    def _give_up(self, peer: bytes, request: messages.Wait) -> None:
        if (peer, request) in self._waiting:
            self._waiting.remove((peer, request))
            ended = [self.ended[job] for job in request.jobs if job in self.ended]
            self._router.send(peer, codec.ok(request.rid, ended))


def _id(ref: UUID | int) -> UUID | None:
    return ref if isinstance(ref, UUID) else None
