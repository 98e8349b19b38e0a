"""The way to the store: calls take time, and fail before they are committed or after.

A call is on its way, is executed at one moment, and its answer is on its way back. Whoever asked
may be dead or frozen by then; what was executed stays executed. Every call that may change jobs is
shown to the promises, with the rows before and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

from msgspec import Struct

from longshore.errors import StoreUnavailable
from longshore.model.actor import ActorVerdict, MailAction, NewActor, Started
from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.group import (
    MOST_COPIED,
    AddedNode,
    GateVerdict,
    GroupPart,
    GroupSubmitted,
    GroupVerdict,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import Refused
from longshore.model.limits import LimitRule
from longshore.model.worker import Attended, Gone, Late, SessionKey, WorkerInfo
from longshore.ports import Batch, BatchResult, Harvested, Hint, Store
from longshore.testing.faults import FaultyStore
from longshore.testing.simulation.actor_plans import Name
from longshore.testing.simulation.loop import Process, SimulatedLoop, current_process

READS: Final = frozenset(
    {"placed", "draining", "overdue", "cancelling", "job", "jobs", "ended", "resolve", "lanes"}
    | {"queues", "depths", "workers", "dispatchers", "explain", "group", "groups", "nodes"}
    | {"is_sweeping", "nodes_near"}
    | {
        "limit_rules",
        "limit_key",
        "limit_keys",
        "actor",
        "actors",
        "turns",
        "mail",
        "replies",
        "deliver_sends",
        "callback_secret",
    }
    | {"web_attendance", "web_workers", "version_of_job", "filesets", "fileset_versions"}
    | {"fileset_version", "blob_generations", "doomed_blobs", "unused_bytes", "old_logs"}
    | {"log_parts", "peaks"}
    | {"schedule", "schedules", "fires", "fires_between", "fire_of", "due_schedules"}
    | {"pending_fires"}
)

Answer = TypeVar("Answer")


class Edit(Struct, frozen=True):
    """A change of an actor's state."""

    actor: Name
    state: bytes
    restart: bool


class Sorting(Struct, frozen=True):
    """What is done with a message of an actor's mailbox."""

    actor: Name
    number: int
    action: MailAction


class Additions(Struct, frozen=True):
    """What a client adds to a group."""

    group: UUID
    request: UUID
    nodes: tuple[AddedNode, ...]


class Rerun(Struct, frozen=True):
    """A step towards a new run of a group."""

    group: UUID
    run: UUID
    keys: tuple[str, ...]


class Removed(Struct, frozen=True):
    """The rule of this pattern is removed."""

    pattern: str


About = (
    Additions
    | Rerun
    | LimitRule
    | Removed
    | Batch
    | SessionKey
    | GroupPart
    | UUID
    | tuple[NewActor, ...]
    | Name
    | Edit
    | Sorting
    | None
)
"""What a call is about: a batch, a session, a part of a group or a whole one, or an actor."""


class Committed(Struct, frozen=True):
    """A call that was executed: by whom, what it was, and what it answered."""

    process: Process
    verb: str
    about: About
    answer: object


OnCommit = Callable[[Committed], None]
"""Is shown every call that may have changed something, at the moment it was executed."""


class Weather(Struct):
    """How the database and the way to it are at present."""

    delay_s: tuple[float, float]
    flaky: float = 0.0
    """The share of calls that fail, half of them before and half after they are executed."""
    lost_hints: float = 0.0
    away: dict[str, float] = {}
    """Nodes that do not reach the database, and how long it takes them to find that out."""
    late: dict[str, float] = {}
    """Nodes that are answered late, and by how much."""


class Database:
    """One store and the ways to it. `open_store` opens it for one more process."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        loop: SimulatedLoop,
        random: Random,
        weather: Weather,
        on_commit: OnCommit,
    ) -> None:
        self.open_store = open_store
        self.weather = weather
        self.random = random
        self._loop = loop
        self._on_commit = on_commit
        self.spoilt = 0
        """How many calls it failed, or answered late."""

    async def ask(
        self,
        verb: str,
        call: Callable[[], Awaitable[Answer]],
        about: About = None,
    ) -> Answer:
        """The answer, if one comes."""
        request: _Request[Answer] = _Request(self._loop, verb, call, about)
        self._loop.outside_at(self._loop.time() + self._delay_s(), self._execute, request)
        return await request.answer

    def _delay_s(self) -> float:
        return self.random.uniform(*self.weather.delay_s)

    def _execute(self, request: _Request[Any]) -> None:
        if request.process.dead and self.random.random() < 0.5:
            return
        patience_s = self.weather.away.get(request.process.node)
        if patience_s is not None:
            reaches = self.random.random() < 0.1
            if reaches:
                self._commit(request)
            self._fail(request, "the store does not answer", patience_s)
            return
        luck = self.random.random() / self.weather.flaky if self.weather.flaky else 1.0
        if luck < 0.5:
            self._fail(request, f"the store was away before {request.verb}", 0.0)
        else:
            self._answer(request, lost=luck < 1.0)

    def _answer(self, request: _Request[Any], *, lost: bool) -> None:
        try:
            answer = self._commit(request)
        except Exception as error:
            self._later(request.fail, error)
            return
        if lost:
            self._fail(request, f"the answer to {request.verb} was lost", 0.0)
        else:
            late_s = self.weather.late.get(request.process.node, 0.0)
            self.spoilt += late_s > 0
            self._later(request.succeed, answer, after_s=late_s)

    def _commit(self, request: _Request[Any]) -> object:
        answer: object = at_once(request.call())
        if request.verb not in READS:
            committed = Committed(request.process, request.verb, request.about, answer)
            self._on_commit(committed)
        return answer

    def _fail(self, request: _Request[Any], why: str, after_s: float) -> None:
        self.spoilt += 1
        self._later(request.fail, StoreUnavailable(f"{why}; try again"), after_s=after_s)

    def _later(self, settle: Callable[[Any], None], what: object, *, after_s: float = 0.0) -> None:
        at = self._loop.time() + after_s + self._delay_s()
        self._loop.outside_at(at, settle, what)


class _Request(Generic[Answer]):
    """One call, and the process that waits for its answer."""

    def __init__(
        self,
        loop: SimulatedLoop,
        verb: str,
        call: Callable[[], Awaitable[Answer]],
        about: About,
    ) -> None:
        self.process = current_process()
        self.verb = verb
        self.call = call
        self.about = about
        self.answer: asyncio.Future[Answer] = loop.create_future()
        self._loop = loop

    def succeed(self, answer: Answer) -> None:
        """The answer is there to be read."""
        self._loop.call_soon(self._settle, answer, None, context=self.process.context)

    def fail(self, error: Exception) -> None:
        """An error is there to be read."""
        self._loop.call_soon(self._settle, None, error, context=self.process.context)

    def _settle(self, answer: Answer | None, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(cast(Answer, answer))


class RemoteStore(FaultyStore):
    """The store as one process sees it, from afar."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.open_store())
        self._database = database

    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._database.ask(verb, call)

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        """As the store does, so that the promises see what went in."""
        return await self._database.ask("pump", lambda: self.store.pump(dispatcher, batch), batch)

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        """As the store does, so that the trace says whom it was about."""
        return await self._database.ask(
            "attend",
            lambda: self.store.attend(dispatcher, info, draining=draining, session=session),
            SessionKey(info.id, session or 0),
        )

    async def harvest(
        self,
        worker: UUID,
        session: int,
        why: str,
        *,
        crash: bool,
        crash_limit: int,
        undelivered: Collection[int] = (),
    ) -> Harvested:
        """As the store does, so that the trace says whom it was about."""
        return await self._database.ask(
            "harvest",
            lambda: self.store.harvest(
                worker,
                session,
                why,
                crash=crash,
                crash_limit=crash_limit,
                undelivered=undelivered,
            ),
            SessionKey(worker, session),
        )

    async def set_limit(self, rule: LimitRule) -> None:
        """As the store does, so that the promises see what went in."""
        await self._database.ask("set_limit", lambda: self.store.set_limit(rule), rule)

    async def remove_limit(self, pattern: str) -> bool:
        """As the store does, so that the promises see what went in."""
        return await self._database.ask(
            "remove_limit", lambda: self.store.remove_limit(pattern), Removed(pattern)
        )

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        """As the store does, so that the promises see what went in."""
        return await self._database.ask("submit_group", lambda: self.store.submit_group(part), part)

    async def add_to_group(
        self,
        ref: UUID | int,
        request: UUID,
        nodes: Sequence[AddedNode],
        *,
        max_group_jobs: int = MAX_GROUP_JOBS,
        max_group_edges: int = MAX_GROUP_EDGES,
    ) -> GroupSubmitted | Refused | None:
        """As the store does, so that the promises see what went in."""
        about = Additions(_group_id(ref), request, tuple(nodes))
        return await self._database.ask(
            "add_to_group",
            lambda: self.store.add_to_group(
                ref,
                request,
                nodes,
                max_group_jobs=max_group_jobs,
                max_group_edges=max_group_edges,
            ),
            about,
        )

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        """As the store does, so that the promises see which group it was."""
        return await self._database.ask(
            "cancel_group", lambda: self.store.cancel_group(ref, by), _group_id(ref)
        )

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        """As the store does, so that the promises see which group it was."""
        return await self._database.ask(
            "open_gate", lambda: self.store.open_gate(ref, key, value, by), _group_id(ref)
        )

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        args: bytes | None = None,
        dry_run: bool = False,
    ) -> RetryPlan | None:
        """As the store does, so that the promises see which group it was."""
        return await self._database.ask(
            "retry_group",
            lambda: self.store.retry_group(ref, by, request, keys=keys, args=args, dry_run=dry_run),
            _group_id(ref),
        )

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> RunPlan | None:
        """As the store does, so that the promises see what went in."""
        assert not dry_run, "simulated clients ask for no plans"
        return await self._database.ask(
            "rerun_group",
            lambda: self.store.rerun_group(
                ref, run, keys=keys, most=most, max_group_jobs=max_group_jobs
            ),
            Rerun(_group_id(ref), run, tuple(keys)),
        )

    async def start_actors(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> list[Started | Refused]:
        """As the store does, so that the promises see what went in."""
        return await self._database.ask(
            "start_actors", lambda: self.store.start_actors(actors, reuse=reuse), tuple(actors)
        )

    async def pause_actor(self, type: str, key: str, paused: bool) -> ActorVerdict:
        """As the store does, so that the promises see whom it was about."""
        return await self._database.ask(
            "pause_actor" if paused else "resume_actor",
            lambda: self.store.pause_actor(type, key, paused),
            (type, key),
        )

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        """As the store does, so that the promises see whom it was about."""
        return await self._database.ask(
            "stop_actor", lambda: self.store.stop_actor(type, key, by), (type, key)
        )

    async def edit_actor(
        self,
        type: str,
        key: str,
        state: bytes,
        version: int,
        *,
        turn: int | None = None,
        restart: bool = False,
        listed: Mapping[str, str] | None = None,
    ) -> ActorVerdict:
        """As the store does, so that the promises see what went in."""
        return await self._database.ask(
            "edit_actor",
            lambda: self.store.edit_actor(
                type, key, state, version, turn=turn, restart=restart, listed=listed
            ),
            Edit((type, key), state, restart),
        )

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        """As the store does, so that the promises see which message it was about."""
        return await self._database.ask(
            "sort_mail",
            lambda: self.store.sort_mail(type, key, number, action),
            Sorting((type, key), number, action),
        )

    def tell_others(self) -> None:
        """Nothing: nobody looks at a simulation while it runs."""

    async def watch(self) -> AsyncIterator[Hint]:
        """Hints, some of which get lost."""
        async for hint in self.store.watch():
            if self._database.random.random() >= self._database.weather.lost_hints:
                yield hint


def _group_id(ref: UUID | int) -> UUID:
    assert isinstance(ref, UUID), "simulated clients name groups by their ids"
    return ref


def at_once(work: Awaitable[Answer]) -> Answer:
    """What a coroutine answers that never waits."""
    try:
        work.__await__().send(None)
    except StopIteration as stopped:
        return cast(Answer, stopped.value)
    raise AssertionError("a simulated store must not wait")
