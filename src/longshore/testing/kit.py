"""A kit for tests of code that submits jobs, and of the jobs themselves.

    with run_inline(app) as kit:
        handle = send.submit("ann@example.org")
        kit.drain()
        assert handle.result() == "sent"

While it lasts, the app submits to a store in memory. Nothing is sent anywhere, and no job runs
before the test says so: each then runs in the test's own process, one after the other.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct, structs

from longshore.client.app import App
from longshore.client.group import GroupBuilder
from longshore.client.group_handle import GroupHandle
from longshore.client.handle import unsuccessful
from longshore.client.kind import AnyKind, Call
from longshore.core.limits import MAX_DURATION_S
from longshore.core.tracing import untraced
from longshore.errors import InvalidInput, LongshoreError, WouldBlock, WrongState
from longshore.executors import scratch
from longshore.executors.attempts import released
from longshore.executors.host.shared_run import BatchHandler
from longshore.executors.output.capture import Hearing
from longshore.model.attempt import Assignment, Attempt
from longshore.model.job import Ended, JobState, Options, Submission
from longshore.model.reports import Report
from longshore.payload import values
from longshore.ports import Handlers
from longshore.ports.files import Files
from longshore.testing.attempt import InlineAttempt
from longshore.testing.batch import BatchedAttempt, Gathered, InlineBatch
from longshore.testing.inline import InlineClients
from longshore.testing.inline_dispatcher import InlineDispatcher
from longshore.wire.dispatcher_side import assignment

if TYPE_CHECKING:
    from longshore.testing.kit_files import KitFilesets

MOST_ATTEMPTS = 1_000

Performed = Report | list[Report]
"""How an attempt ended, or each of a batch."""


class SubmittedJob:
    """A job as it was submitted; equal to any call that describes it, whatever the ids."""

    def __init__(self, submission: Submission, arguments: dict[str, Any]) -> None:
        self.submission = untraced(submission)
        """All of it: kind, queue, target, priority, run_at, delay_s, unique_key, options."""
        self.arguments = arguments
        """What was given, by name, as the job will see it."""

    @property
    def id(self) -> UUID:
        """The job's id; `app.handle(id)` leads to its result."""
        return self.submission.id

    @property
    def kind(self) -> str:
        """The job's kind."""
        return self.submission.kind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call | SubmittedJob):
            return NotImplemented
        mine, its = self.submission, other.submission
        is_alike = structs.replace(its, id=mine.id, args=mine.args) == mine
        return is_alike and values.unpack(mine.args) == values.unpack(its.args)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        plain = Submission(self.id, self.kind, self.submission.args)
        told = ", ".join(_told(self.submission, plain) + _told(self.submission.options, Options()))
        return f"<{self.kind}({given}){' with ' if told else ''}{told}>"


def _told(given: Struct, plain: Struct) -> list[str]:
    """What differs from what is so unless it is given."""
    fields = [name for name in plain.__struct_fields__ if name != "options"]
    pairs = [(name, getattr(given, name)) for name in fields]
    return [f"{name}={value!r}" for name, value in pairs if value != getattr(plain, name)]


class Kit:
    """A store in memory, a clock that stands still, and what runs the jobs of some apps.

    Made by `run_inline`. It belongs to the thread that made it.
    """

    def __init__(self, apps: Sequence[App], *, eager: bool) -> None:
        self._apps = apps
        self._eager = eager
        self.dispatcher = InlineDispatcher(self._handlers, self._cancel)
        """What takes the place of a dispatcher."""
        self._running: dict[UUID, InlineAttempt] = {}
        self._gathered = Gathered()
        self._hearing = Hearing()
        self._access = InlineClients(self)

    def _handlers(self) -> Handlers:
        return {kind: one for app in self._apps for kind, one in app.handlers().items()}

    # what was submitted

    def submitted(self, kind: AnyKind | str | None = None) -> list[SubmittedJob]:
        """The jobs submitted so far, by the test or by other jobs, in order; all, or of a kind."""
        wanted = kind if kind is None or isinstance(kind, str) else kind.kind
        jobs = self.dispatcher.submissions()
        return [SubmittedJob(j, self._arguments(j)) for j in jobs if wanted in (None, j.kind)]

    def _arguments(self, job: Submission) -> dict[str, Any]:
        handler = self._handlers().get(job.kind)
        if handler is not None:
            return handler.bind(job.args)
        arguments: dict[str, Any] = values.unpack(job.args)
        return arguments

    # files

    @cached_property
    def filesets(self) -> KitFilesets:
        """The filesets that commands read and make: `push` makes a version, `pull` reads one."""
        # Imported here: most tests have nothing to do with files.
        from longshore.testing.kit_files import KitFilesets

        return KitFilesets(self.dispatcher)

    def _files(self, assignment: Assignment) -> Files:
        return self.filesets.of(assignment)

    # gates

    def open_gate(
        self, group: GroupBuilder | GroupHandle | UUID, key: str, value: object = None
    ) -> None:
        """Opens a gate of a group, as a user would; the next drain runs what waited for it."""
        handle = group.handle if isinstance(group, GroupBuilder) else group
        self.dispatcher.open_gate(handle if isinstance(handle, UUID) else handle.id, key, value)
        if not _is_in_loop():
            self.catch_up()

    # time

    @property
    def now(self) -> datetime:
        """The kit's time, which stands still until it is moved."""
        return self.dispatcher.clock.utc()

    def advance(self, seconds: float | timedelta) -> None:
        """So much time passes. What becomes due by it is run by the next drain."""
        given = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not 0 <= given <= MAX_DURATION_S:
            raise InvalidInput(
                f"advance({seconds!r}): time does not go back, nor on for ever; give 0 or more, "
                "and at most 100 years"
            )
        self.dispatcher.clock.ahead += timedelta(seconds=given)

    # running

    def drain(
        self,
        *,
        queue: str | None = None,
        retries: bool = True,
        raise_failures: bool = False,
        most: int = MOST_ATTEMPTS,
    ) -> int:
        """Runs what is ready, and what that submits, until nothing is; says how many attempts.

        A job that is to be tried again is: time moves on by its backoff, or its snooze. With
        `retries=False` it is left for when `advance` has brought its time. A job that fails raises
        nothing here (its handle does), unless `raise_failures` is given. `queue` drains only that
        queue.
        """
        if _is_in_loop():
            raise WouldBlock("drain() would block the event loop; await drain_async() instead")
        count = 0
        with closing(self._attempts(queue, retries, most)) as attempts:
            for attempt in attempts:
                count += self._end_all(attempt, self._perform(attempt), raise_failures)
        return count

    async def drain_async(
        self,
        *,
        queue: str | None = None,
        retries: bool = True,
        raise_failures: bool = False,
        most: int = MOST_ATTEMPTS,
    ) -> int:
        """The same in a coroutine: `async def` jobs run on its event loop, others in a thread."""
        count = 0
        with closing(self._attempts(queue, retries, most)) as attempts:
            for attempt in attempts:
                if isinstance(attempt, InlineBatch):
                    reports: Performed = await attempt.run_async()
                elif attempt.is_async:
                    reports = await attempt.run_async()
                else:
                    reports = await asyncio.to_thread(attempt.run)
                count += self._end_all(attempt, reports, raise_failures)
        return count

    def _attempts(
        self, queue: str | None, retries: bool, most: int
    ) -> Generator[InlineAttempt | InlineBatch, None, None]:
        count = 0
        try:
            while (next_one := self._next(queue, retries)) is not None:
                attempts = _each(next_one)
                count += len(attempts)
                if count > most:
                    self._hand_back(attempts)
                    raise WrongState(
                        f"drain ran {most:,} attempts, and there is more to run; does a job submit "
                        "itself? If so many are meant, give drain(most=…)"
                    )
                self._running |= {one.claimed.id: one for one in attempts}
                try:
                    with self._hearing:
                        yield next_one
                finally:
                    for one in attempts:
                        del self._running[one.claimed.id]
                        one.over.set_result(None)
        finally:
            while (waiting := self._gathered.next()) is not None:
                self._hand_back([waiting])

    def _hand_back(self, attempts: Sequence[InlineAttempt]) -> None:
        for one in attempts:
            self._end(one, released(assignment(one.claimed)), raise_failures=False)

    def _next(self, queue: str | None, retries: bool) -> InlineAttempt | InlineBatch | None:
        if (waiting := self._gathered.next()) is not None:
            return self._batch_of(waiting, queue)
        claimed = self.dispatcher.claim(queue)
        while claimed is None and retries:
            at = self.dispatcher.next_retry_at(queue)
            if at is None:
                break
            self.dispatcher.clock.ahead += max(timedelta(), at - self.now)
            claimed = self.dispatcher.claim(queue)
        if claimed is None:
            return None
        handlers = self._handlers()
        if isinstance(handlers[claimed.kind], BatchHandler):
            return self._batch_of(self._batched(claimed), queue)
        return InlineAttempt(claimed, handlers, self.dispatcher.clock, self._files)

    def _batched(self, claimed: Attempt) -> BatchedAttempt:
        return BatchedAttempt(claimed, self._handlers(), self.dispatcher.clock)

    def _batch_of(self, first: BatchedAttempt, queue: str | None) -> InlineBatch:
        def claim() -> BatchedAttempt | None:
            more = self.dispatcher.claim(queue, first.claimed.kind)
            return None if more is None else self._batched(more)

        return self._gathered.batch_of(first, claim)

    def _perform(self, attempt: InlineAttempt | InlineBatch) -> Performed:
        if isinstance(attempt, InlineBatch):
            return self._access.run_here(attempt.run_async())
        if attempt.is_async:
            return self._access.run_here(attempt.run_async())
        return contextvars.copy_context().run(attempt.run)

    def _end_all(
        self, attempt: InlineAttempt | InlineBatch, reports: Performed, raise_failures: bool
    ) -> int:
        """Records how attempts ended, all of them before it raises; answers how many."""
        if isinstance(attempt, InlineAttempt):
            assert not isinstance(reports, list), "one attempt has one report"
            self._end(attempt, reports, raise_failures)
            return 1
        assert isinstance(reports, list), "a batch has a report for each"
        failures: list[Exception] = []
        for one, report in zip(attempt.attempts, reports, strict=True):
            try:
                self._end(one, report, raise_failures)
            except LongshoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return len(reports)

    def _end(self, attempt: InlineAttempt, report: Report, raise_failures: bool) -> None:
        if (left := attempt.context.leftover()) is not None:
            scratch.remove(left)
        job = self.dispatcher.end(report, attempt.claimed, attempt.context.unsaid())
        if raise_failures and job is not None and job.state is JobState.FAILED:
            ended = Ended(job.id, job.state, error=job.error)
            raise unsuccessful(f"job {job.number} ({job.kind})", ended) from attempt.error

    def _cancel(self, job: UUID) -> None:
        if job in self._running:
            self._running[job].cancel()

    # for an eager kit

    def catch_up(self) -> None:
        """Runs what is ready, if the kit is eager."""
        if self._eager:
            self.drain()

    async def catch_up_async(self, jobs: Sequence[UUID]) -> None:
        """Runs what is ready, if the kit is eager; waits for these jobs if another task does."""
        if not self._eager:
            return
        await self.drain_async()
        while running := [self._running[job] for job in jobs if job in self._running]:
            await asyncio.wrap_future(running[0].over)
            await self.drain_async()

    # its life

    def begin(self) -> None:
        """From now on the apps submit to this kit."""
        for app in self._apps:
            if app._access.stand_in is not None:
                raise WrongState(f"the app '{app.name}' is in another test kit already")
        for app in self._apps:
            app._access.stand_in = self._access

    def end(self) -> None:
        """From now on they submit where they did before."""
        for app in self._apps:
            app._access.stand_in = None
        self._access.end()
        if "filesets" in vars(self):
            self.filesets.close()


@contextmanager
def run_inline(*apps: App, eager: bool = False) -> Iterator[Kit]:
    """Has apps submit to a kit for a while; with `eager` each job runs when it is submitted.

    The same in synchronous and in asynchronous tests.
    """
    if not apps:
        raise InvalidInput("run_inline() needs an app: run_inline(app)")
    kinds = Counter(kind for app in apps for kind in app.handlers())
    for kind in (kind for kind, count in kinds.items() if count > 1):
        raise InvalidInput(f"two of these apps have a job '{kind}'; give one a kind=…")
    kit = Kit(apps, eager=eager)
    kit.begin()
    try:
        yield kit
    finally:
        kit.end()


def _each(attempt: InlineAttempt | InlineBatch) -> Sequence[InlineAttempt]:
    return attempt.attempts if isinstance(attempt, InlineBatch) else [attempt]


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
