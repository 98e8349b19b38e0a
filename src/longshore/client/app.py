"""`App`: the kinds of job that a program has, and its way to the dispatchers."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

from longshore import config
from longshore.client.actor import ActorRef, ActorType
from longshore.client.actor_class import ActorClass
from longshore.client.actor_decorator import ActorDecorator, ActorExtras, actor_terms, history_of
from longshore.client.actor_handler import ActorHandler
from longshore.client.actor_listing import actor_filter
from longshore.client.adapters import (
    Dialler,
    enqueue_in,
    enqueue_in_async,
    send_in,
    send_in_async,
)
from longshore.client.batch import Batch
from longshore.client.batch_handler import handler_for
from longshore.client.clients import Clients, blocking
from longshore.client.connection import Connection, Ref
from longshore.client.decorator import Decorator
from longshore.client.group import GroupBuilder
from longshore.client.group_handle import GroupHandle
from longshore.client.group_plan import GroupPlan
from longshore.client.handle import Handle, all_ended_async, as_ended_async, handles_of
from longshore.client.handler import FunctionHandler, name_of
from longshore.client.handles import Handles, awaited_of
from longshore.client.hooks import Hooks, hook, without_brackets
from longshore.client.ids import fresh_id
from longshore.client.kind import AnyKind, Call, CallbackGiven, Kind, SubmitOptions, Terms, calls_of
from longshore.client.limit import Limit
from longshore.client.program_kinds import DeclaresPrograms
from longshore.client.retry_rule import RetryRule
from longshore.client.schedule_declaring import DeclaresSchedules
from longshore.client.sending import (
    ROOM_S,
    MessageCall,
    message_calls,
    send_all,
    send_all_async,
)
from longshore.client.submitting import submit_all, submit_all_async
from longshore.core.actor_limits import check_actor_type
from longshore.core.limits import check_name
from longshore.core.turns import turn_kind
from longshore.errors import AppError, InvalidArguments, InvalidInput, NotFound, from_code
from longshore.model.actor import Actor, ActorStatus, ActorVerdict
from longshore.model.ids import parse_ref
from longshore.model.job import Job, JobState, Refused, Submitted
from longshore.model.worker import PROGRAM_POOLS, Isolation, Pool
from longshore.payload import values
from longshore.ports import Handler
from longshore.wire.messages import SubmitAnswer

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class App(DeclaresPrograms, DeclaresSchedules):
    """The jobs of a program. It connects, and starts a thread, only when it needs to."""

    def __init__(
        self,
        name: str,
        connect: str | Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
        connection: Callable[[], Connection] | None = None,
        new_id: Callable[[], UUID] = fresh_id,
    ) -> None:
        check_name("the app's name", name)
        _check_timeout(timeout_s)
        self.name = name
        self._addresses = connect
        self._timeout_s = timeout_s
        self._access = Clients(connection or self._connection)
        self._new_id = new_id
        self._kinds: dict[str, AnyKind] = {}
        self._actors: dict[str, ActorType[Any]] = {}
        self._turns: dict[str, ActorHandler] = {}
        """Their handlers, by kind."""
        self._hooks = Hooks(name)

    def __repr__(self) -> str:
        return f"<App {self.name}: {', '.join(self._kinds) or 'no jobs'}>"

    def _connection(self) -> Connection:
        settings = config.load()
        return Connection(
            self._addresses or settings.client_addresses(),
            timeout_s=self._timeout_s or settings.request_timeout_s,
            dialler=Dialler.of(settings),
        )

    # declaring

    @property
    def job(self) -> Decorator:
        """Makes a function a kind of job: `@app.job`, or `@app.job(retries=3, …)`."""
        return Decorator(self._declare)

    def _declare(
        self,
        function: Callable[..., Any],
        kind: str | None,
        isolation: Isolation | None,
        terms: Terms,
        batch: Batch | None,
    ) -> AnyKind:
        kind = kind or name_of(function)
        _refuse_odd(kind, function)
        terms.submission(UUID(int=0), kind, b"")
        handler = handler_for(kind, function, self._hooks, terms.advertised(), isolation, batch)
        return self._add_kind(handler, function, terms)

    def _add_kind(
        self, handler: FunctionHandler, function: Callable[..., Any], terms: Terms
    ) -> AnyKind:
        if handler.kind in self._kinds or handler.kind in self._turns:
            raise AppError(
                f"the app '{self.name}' already has a job '{handler.kind}'; rename one of the two, "
                "or give one a kind=…"
            )
        declared: AnyKind = Kind(self._access, handler, function, terms, self._new_id)
        self._kinds[handler.kind] = declared
        return declared

    @property
    def actor(self) -> ActorDecorator:
        """Makes a class a type of actors: `@app.actor`, or `@app.actor(version=2, …)`."""
        return ActorDecorator(self._declare_actor)

    def _declare_actor(
        self,
        of: Any,
        type: str | None,
        version: int,
        isolation: Isolation | None,
        terms: Terms,
        retry_rule: RetryRule,
        extras: ActorExtras,
    ) -> ActorType[Any]:
        type = str(type or getattr(of, "__name__", repr(of)))
        check_actor_type(type)
        terms.submission(UUID(int=0), turn_kind(type, version), b"")
        if type in self._actors:
            raise AppError(
                f"the app '{self.name}' already has an actor '{type}'; rename one of the two, or "
                "give one a type=…"
            )
        actor = ActorClass(type, of, version, isolation, extras.listed)
        history = history_of(type, extras.history)
        declared = ActorType(self._access, actor, actor_terms(type, terms, history), self._new_id)
        for one in range(1, version + 1):
            handler = ActorHandler(
                actor, one, self._hooks, declared.ref, terms.advertised(), retry_rule, history
            )
            self._turns[handler.kind] = handler
        self._actors[type] = declared
        return declared

    def actor_ref(self, type: str, key: str) -> ActorRef[Any]:
        """An actor by the name of its type, whose class may be elsewhere."""
        known = self._actors.get(type)
        if known is not None:
            return known.ref(key)
        return ActorRef(self._access, type, key, self._new_id)

    async def resolve_async(self, token: str, value: Any = None) -> bool:
        """Gives a callback, which `ctx.callback(…)` of an actor made, its value.

        The first value counts: answers whether it is this one. Raises `NotFound` if the actor is
        gone, and `InvalidInput` if nobody of this fleet has made the token.
        """
        packed = values.pack(value, "the value of a callback")
        verdict = await self._access.connection().actors.resolve(token, packed)
        if verdict is ActorVerdict.NOT_FOUND:
            raise NotFound("the actor that waits for this callback is gone")
        return verdict is ActorVerdict.DONE

    resolve = blocking(resolve_async)

    async def actors_async(
        self,
        type: str | ActorType[Any] | None = None,
        /,
        *,
        status: ActorStatus | str | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Actor, None]:
        """The actors, by type and key: of one type, with one status, with these fields.

        Fields are those that the class is listed by (`@app.actor(listed=("plan",))`). A dispatcher
        is asked for a bounded number at a time.
        """
        wanted = actor_filter(self._actors, type, status, fields)
        async with aclosing(self._access.acting().connection().actors.all(wanted)) as found:
            async for actor in found:
                yield actor

    def actors(
        self,
        type: str | ActorType[Any] | None = None,
        /,
        *,
        status: ActorStatus | str | None = None,
        **fields: Any,
    ) -> Iterator[Actor]:
        """The actors, by type and key: of one type, with one status, with these fields."""
        return self._access.iterate(self.actors_async(type, status=status, **fields))

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers that workers run, by kind."""
        for name, kind in self._kinds.items():
            self._hooks.check(name, kind.handler.signature.given)
        for name, turns in self._turns.items():
            self._hooks.check(name, turns.given)
        return {name: kind.handler for name, kind in self._kinds.items()} | self._turns

    # around jobs

    @without_brackets
    def resource(self, function: F) -> F:
        """Declares what worker processes open once and give to jobs; see docs/workers.md.

        It is a function or a generator, async or not, without parameters. A job gets what it
        returns or yields by a parameter of its name with the default `longshore.GIVEN`.
        """
        self._hooks.add_resource(function)
        return function

    @without_brackets
    def on_start(self, function: F) -> F:
        """Declares what a worker process does once before its first job; async or not."""
        self._hooks.starts.append(hook("start-up hook", function))
        return function

    @without_brackets
    def on_stop(self, function: F) -> F:
        """Declares what a worker process does at its orderly end; async or not."""
        self._hooks.stops.append(hook("stop hook", function))
        return function

    @without_brackets
    def middleware(self, function: F) -> F:
        """Declares what goes around every job: `async def` around async jobs, `def` around others.

        It takes the job's context and the next function to call, and returns the result.
        """
        self._hooks.middleware.append(hook("middleware", function, places=2))
        return function

    def given(self, **resources: object) -> AbstractContextManager[None]:
        """While the block runs, jobs that run in this process get these resources."""
        return self._hooks.given(resources)

    def lifespan(self, pool: Pool) -> AbstractAsyncContextManager[None] | None:
        """What a worker process does around all its jobs; None if nothing."""
        if pool in PROGRAM_POOLS:
            return None
        handlers = [k.handler for k in self._kinds.values() if k.handler.info.pool == pool]
        turns = [turns for turns in self._turns.values() if turns.info.pool == pool]
        names = {name for handler in handlers for name in handler.signature.given}
        names.update(name for one in turns for name in one.given)
        return self._hooks.lifespan(names) if handlers or turns else None

    # submitting

    async def submit_many_async(
        self,
        calls: Iterable[Call[R]] | AsyncIterable[Call[R]],
        *,
        strict: bool = False,
        progress: bool = False,
    ) -> Handles[R]:
        """Submits many jobs as `submit_many` does; takes asynchronous iterables too."""
        access = self._access.acting()
        return await submit_all_async(access, calls, strict=strict, progress=progress)

    def submit_many(
        self, calls: Iterable[Call[R]], *, strict: bool = False, progress: bool = False
    ) -> Handles[R]:
        """Submits many jobs, and describes later ones while earlier ones are under way.

        A generator is pulled in the caller's thread, and only as fast as the dispatcher accepts.
        If some jobs are refused, it raises and says how many; the others are accepted nevertheless.
        What the generator itself raises is raised here; what was sent before is accepted.

        It returns a sequence that makes each handle when you ask for it. With `progress`, a bar on
        standard error shows how far it is, if that is a terminal.
        """
        access = self._access.for_blocking(self.submit_many_async)
        return submit_all(access, calls, strict=strict, progress=progress)

    async def send_many_async(
        self,
        calls: Iterable[MessageCall] | AsyncIterable[MessageCall],
        *,
        room_s: float | None = ROOM_S,
    ) -> None:
        """Sends many messages as `send_many` does; takes asynchronous iterables too."""
        await send_all_async(self._access.acting(), calls, room_s)

    def send_many(self, calls: Iterable[MessageCall], *, room_s: float | None = ROOM_S) -> None:
        """Sends messages to actors, and describes later ones while earlier ones are under way.

        When it returns, all are durable. An actor gets its messages in the order given. A generator
        is pulled in the caller's thread, and only as fast as the dispatcher accepts. A full mailbox
        makes it wait, unless that stays full for `room_s`. If messages are refused, it raises and
        says how many; the others are accepted nevertheless.
        """
        send_all(self._access.for_blocking(self.send_many_async), calls, room_s)

    async def submit_by_name_async(
        self,
        kind: str,
        arguments: Mapping[str, object] | None = None,
        *,
        strict: bool = False,
        **options: Unpack[SubmitOptions],
    ) -> Handle[Any]:
        """Submits a job of a kind whose function is elsewhere, with its arguments by name.

        The queue, retries, timeout and so on are those that the app with the function declares, as
        long as a live worker serves the kind. Options replace them.
        """
        call = await self._call_by_name(kind, arguments, options)
        return await call.submit_async(strict=strict)

    submit_by_name = blocking(submit_by_name_async)

    async def _call_by_name(
        self, kind: str, arguments: Mapping[str, object] | None, options: SubmitOptions
    ) -> Call[Any]:
        given = _by_name(kind, arguments)
        if kind in self._kinds:
            return self._kinds[kind].options(**options).call(**given)
        check_name("kind", kind)
        packed = values.pack_arguments(given, kind)
        told = await self._access.connection().kind(kind)
        terms = Terms.of_kind(told).for_submit(options)
        submission = terms.submission(terms.id or self._new_id(), kind, packed)
        return Call(self._access, submission, unpack_any)

    # groups

    def group(
        self,
        name: str,
        *,
        fail_fast: bool = False,
        labels: Sequence[str] = (),
        callback: CallbackGiven | None = None,
        limit: Limit | None = None,
        strict: bool = False,
    ) -> GroupBuilder:
        """Begins a group: jobs that depend on each other, submitted as one at the end of a `with`.

        With `fail_fast`, the first failure cancels what has not ended. `callback` is a URL that is
        called when the group has ended. `limit` counts all of its jobs together. With `strict`,
        kinds that no live worker serves are refused. Coroutines use `async with`.
        """
        plan = GroupPlan(
            self._new_id(), name, fail_fast=fail_fast, labels=labels, callback=callback, limit=limit
        )
        return GroupBuilder(self._access, plan, self._unpacker, strict=strict)

    async def group_handle_async(self, ref: Ref | str) -> GroupHandle:
        """The handle of a group submitted elsewhere, by its id or number, as text too.

        Raises `NotFound` if there is no such group.
        """
        group = await self._access.connection().group(_known(ref, "group"))
        return GroupHandle(self._access, group.id, group.number, group.name, self._unpacker)

    group_handle = blocking(group_handle_async)

    # submitting in the application's own transaction

    async def enqueue_async(
        self, connection: object, call: Call[R], *, notify: bool = False
    ) -> Handle[R]:
        """Enqueues a job in the transaction of a PostgreSQL connection that is awaited.

        Committed, the job starts within `poll_s`; rolled back, it never existed. With `notify`,
        dispatchers hear of it at the commit, but commits that notify wait for one another.
        """
        [handle] = await self.enqueue_many_async(connection, [call], notify=notify)
        return handle

    def enqueue(self, connection: object, call: Call[R], *, notify: bool = False) -> Handle[R]:
        """Enqueues a job in the transaction of a PostgreSQL connection that blocks."""
        [handle] = self.enqueue_many(connection, [call], notify=notify)
        return handle

    async def enqueue_many_async(
        self, connection: object, calls: Iterable[Call[R]], *, notify: bool = False
    ) -> list[Handle[R]]:
        """Enqueues many jobs as `enqueue_async` does one."""
        calls = calls_of(calls)
        if self._access.stand_in is not None:  # a test kit, which has no transactions
            return list(await self.submit_many_async(calls))
        jobs = [call.submission for call in calls]
        return self._enqueued(calls, await enqueue_in_async(connection, jobs, notify=notify))

    def enqueue_many(
        self, connection: object, calls: Iterable[Call[R]], *, notify: bool = False
    ) -> list[Handle[R]]:
        """Enqueues many jobs as `enqueue` does one."""
        calls = calls_of(calls)
        if self._access.stand_in is not None:  # a test kit, which has no transactions
            return list(self.submit_many(calls))
        jobs = [call.submission for call in calls]
        return self._enqueued(calls, enqueue_in(connection, jobs, notify=notify))

    async def enqueue_send_async(
        self, connection: object, call: MessageCall, *, notify: bool = False
    ) -> None:
        """Sends a message to an actor in the transaction of a connection that is awaited.

        Committed, the message arrives within `poll_s`, once; rolled back, it never existed. It
        locks no actor. If the actor is not there then, the message is kept as undelivered. With
        `notify`, dispatchers hear of it at the commit, as with `enqueue_async`.
        """
        await self.enqueue_sends_async(connection, [call], notify=notify)

    def enqueue_send(self, connection: object, call: MessageCall, *, notify: bool = False) -> None:
        """Sends a message to an actor in the transaction of a connection that blocks."""
        self.enqueue_sends(connection, [call], notify=notify)

    async def enqueue_sends_async(
        self, connection: object, calls: Iterable[MessageCall], *, notify: bool = False
    ) -> None:
        """Sends many messages as `enqueue_send_async` does one; they arrive in this order."""
        calls = message_calls(calls)
        if self._access.stand_in is not None:  # a test kit, which has no transactions
            await self.send_many_async(calls)
            return
        await send_in_async(connection, [call.message for call in calls], notify=notify)

    def enqueue_sends(
        self, connection: object, calls: Iterable[MessageCall], *, notify: bool = False
    ) -> None:
        """Sends many messages as `enqueue_send` does one; they arrive in this order."""
        calls = message_calls(calls)
        if self._access.stand_in is not None:  # a test kit, which has no transactions
            self._access.run(self.enqueue_sends_async(connection, calls))
            return
        send_in(connection, [call.message for call in calls], notify=notify)

    def _enqueued(
        self, calls: Sequence[Call[R]], answers: Sequence[Submitted | Refused]
    ) -> list[Handle[R]]:
        """The handles of the jobs; raises if one was refused, and so ends the transaction."""
        accepted = []
        for answer in answers:
            if isinstance(answer, Refused):
                raise from_code(answer.code, f"{answer.message}; roll this transaction back")
            accepted.append(SubmitAnswer(answer.id, answer.number, answer.existing))
        pairs = zip(calls, accepted, strict=True)
        return [call.accepted(answer, self._access, stored=False) for call, answer in pairs]

    async def handle_async(self, ref: Ref | str) -> Handle[Any]:
        """The handle of a job submitted elsewhere, by its id or number, as text too.

        An id needs no request: a job that does not exist is an error only once you ask something
        of the handle. A number is looked up, and raises `NotFound` if there is no such job.
        """
        known = _known(ref)
        if isinstance(known, UUID):
            return Handle.of_id(self._access, known, self._unpacker)
        job = await self._access.connection().job(known)
        in_group = job.group is not None
        unpack = self._unpacker(job)
        return Handle(self._access, job.id, job.number, job.kind, unpack, in_group=in_group)

    def handle(self, ref: Ref | str) -> Handle[Any]:
        """The handle of a job submitted elsewhere; see `handle_async`.

        With an id, a coroutine may call it too.
        """
        known = _known(ref)
        if isinstance(known, UUID):
            return Handle.of_id(self._access, known, self._unpacker)
        return self._access.run(self.handle_async(known))

    def _unpacker(self, job: Job) -> Callable[[bytes | None], Any]:
        if job.options.raw:
            return lambda data: data
        kind = self._kinds.get(job.kind)
        if kind is not None:
            return kind.handler.signature.unpack_result
        return unpack_any

    # waiting

    async def wait_all_async(
        self, handles: Iterable[Handle[Any]], timeout_s: float | None = None
    ) -> list[JobState]:
        """The states of the jobs once all have ended; raises `NotFinished` if it takes too long."""
        return await all_ended_async(self._access, awaited_of(handles), timeout_s)

    wait_all = blocking(wait_all_async)

    def as_ended_async(
        self, handles: Iterable[Handle[R]], timeout_s: float | None = None
    ) -> AsyncGenerator[Handle[R], None]:
        """The handles in the order in which their jobs end, each with its result."""
        return as_ended_async(self._access, handles_of(handles), timeout_s)

    def as_ended(
        self, handles: Iterable[Handle[R]], timeout_s: float | None = None
    ) -> Iterator[Handle[R]]:
        """The handles in the order in which their jobs end, each with its result."""
        return self._access.iterate(self.as_ended_async(handles, timeout_s))

    async def results_async(
        self, handles: Iterable[Handle[R]], timeout_s: float | None = None
    ) -> AsyncGenerator[R, None]:
        """The results in the order in which the jobs end, if all of them succeed.

        It raises at the first that did not, and then gives no further results. If jobs may fail,
        use `as_ended_async` and ask each handle for its result.
        """
        async for handle in as_ended_async(self._access, handles_of(handles), timeout_s):
            yield await handle.result_async()

    def results(self, handles: Iterable[Handle[R]], timeout_s: float | None = None) -> Iterator[R]:
        """The results in the order in which the jobs end; raises as `results_async` does."""
        return self._access.iterate(self.results_async(handles, timeout_s))

    # closing

    def close(self) -> None:
        """Closes every socket and thread. You can use the app again: it opens new ones."""
        self._access.close()

    async def close_async(self) -> None:
        """Closes every socket and thread. You can use the app again: it opens new ones."""
        await self._access.close_async()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()


def _check_timeout(timeout_s: object) -> None:
    if timeout_s is None:
        return
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not timeout_s > 0:
        raise InvalidInput(f"timeout_s is {timeout_s!r}; give seconds, more than 0")


def _known(ref: Ref | str, what: str = "job") -> Ref:
    return ref if isinstance(ref, UUID) else parse_ref(str(ref), what)


def unpack_any(data: bytes | None) -> Any:
    """A stored result as builtins, where the function's annotation is not known."""
    return None if data is None else values.unpack(data)


def _by_name(kind: str, arguments: Mapping[str, object] | None) -> dict[str, object]:
    if not isinstance(arguments, Mapping | None):
        raise InvalidArguments(
            f"job '{kind}': its arguments are {arguments!r}; give a map by name, like {{'a': 1}}"
        )
    return dict(arguments or {})


def _refuse_odd(kind: str, function: Callable[..., Any]) -> None:
    if not callable(function):
        raise AppError(f"job '{kind}': {function!r} is not a function")
    if isinstance(function, type):
        raise AppError(f"job '{kind}': it is a class; declare a function that uses it")
    if isinstance(function, Kind):
        raise AppError(f"job '{kind}': it is declared as a job already; declare its function")
