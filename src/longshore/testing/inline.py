"""How an app reaches a test kit instead of its dispatchers: no socket, no thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from longshore.client.actor_requests import ActorRequests
from longshore.client.clients import Clients, LoopClient
from longshore.client.connection import Connection, Ref
from longshore.errors import WrongState, from_code
from longshore.model.actor import ActorVerdict, Message, NewActor, Reply
from longshore.model.group import GateVerdict, GroupPart, GroupSubmitted
from longshore.model.job import Submission
from longshore.ports import OnMessages
from longshore.testing.inline_dispatcher import InlineDispatcher
from longshore.wire.actor_messages import ActorRequest, SendAnswer, StartAnswer
from longshore.wire.messages import RetryAnswer, SubmitAnswer

if TYPE_CHECKING:
    from longshore.testing.kit import Kit

T = TypeVar("T")


class InlineClients(Clients):
    """Stands in for an app's access while a kit lasts, and remains with the kit's handles."""

    def __init__(self, kit: Kit) -> None:
        # Not the parent's: a kit forks nothing, so it need not hear of forks.
        self.stand_in = None
        self._connect = lambda: _InlineConnection(self, kit)
        self._kit = kit
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._thread = threading.get_ident()
        self._is_over = False
        self.is_calling = False
        """Whether a call is under way whose caller has no event loop."""
        self._start_over()

    def run_here(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end, always on the same event loop."""
        if threading.get_ident() == self._thread:
            return self._runner.run(coroutine, context=contextvars.copy_context())
        # A plain job of an asynchronous test: it has a thread, and the test's loop goes on.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(coroutine, context=contextvars.copy_context())

    def end(self) -> None:
        """Nothing can be asked any more."""
        self._is_over = True
        for reach in self._reaches.values():
            reach.connection.close()
        self._runner.close()

    def _reach(self) -> LoopClient:
        self._refuse_if_over()
        return super()._reach()

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            self._refuse_if_over()
            self.is_calling = True
            done.set_result(self.run_here(coroutine))
        except Exception as error:
            coroutine.close()
            done.set_exception(error)
            return done
        finally:
            self.is_calling = False
        self._kit.catch_up()
        return done

    def _refuse_if_over(self) -> None:
        if self._is_over:
            raise WrongState(
                "the test kit that had this job is over; use handles inside its `with`, or while "
                "its fixture lasts"
            )


class _InlineConnection(Connection):
    """Speaks the protocol of clients, and is answered at once."""

    def __init__(self, access: InlineClients, kit: Kit) -> None:
        super().__init__("inline://kit", connect=lambda _, heard: _Line(kit.dispatcher, heard))
        self._access = access
        self._kit = kit

    async def submit(
        self, jobs: tuple[Submission, ...], strict: bool = False
    ) -> tuple[SubmitAnswer, ...]:
        """As always; an eager kit then runs them."""
        answers = await super().submit(jobs, strict)
        await self._catch_up([job.id for job in jobs])
        return answers

    async def retry(self, refs: Sequence[Ref]) -> tuple[RetryAnswer, ...]:
        """As always; an eager kit then runs them."""
        answers = await super().retry(refs)
        await self._catch_up([answer.id for answer in answers if answer.id is not None])
        return answers

    async def submit_group(
        self, part: GroupPart, edges: int, strict: bool = False
    ) -> GroupSubmitted:
        """As always; an eager kit then runs what is ready."""
        answer = await super().submit_group(part, edges, strict)
        await self._catch_up([node.job.id for node in part.nodes])
        return answer

    async def open_gate(self, ref: Ref, key: str, value: bytes | None = None) -> GateVerdict:
        """As always; an eager kit then runs what waited for it."""
        verdict = await super().open_gate(ref, key, value)
        await self._catch_up([])
        return verdict

    @property
    def actors(self) -> ActorRequests:
        """As always; an eager kit then takes the turns that are due."""
        next_rid = partial(next, self._rids)
        return _InlineActors(
            self._kit, self._catch_up, self._exchange, next_rid, self._new_id, self._wait_slice_s
        )

    async def _catch_up(self, jobs: Sequence[UUID]) -> None:
        if not self._access.is_calling:
            await self._kit.catch_up_async(jobs)


class _InlineActors(ActorRequests):
    """The requests about actors. Who waits for a reply has the turns taken that are due."""

    def __init__(
        self, kit: Kit, catch_up: Callable[[Sequence[UUID]], Awaitable[None]], *parts: Any
    ) -> None:
        super().__init__(*parts)
        self._kit = kit
        self._catch_up = catch_up

    async def start(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> tuple[StartAnswer, ...]:
        answers = await super().start(actors, reuse=reuse)
        await self._catch_up([])
        return answers

    async def send(self, messages: Sequence[Message]) -> tuple[SendAnswer, ...]:
        answers = await super().send(messages)
        await self._catch_up([])
        return answers

    async def ask(self, message: Message, wait_s: float) -> Reply | None:
        [answer] = await self.send((message,))
        if answer.code:
            raise from_code(answer.code, answer.message)
        return await self.reply(message.id, wait_s)

    async def reply(self, ask: UUID, wait_s: float) -> Reply | None:
        await self._kit.drain_async()
        return await super().reply(ask, wait_s)

    async def _change(self, request: ActorRequest) -> ActorVerdict:
        verdict = await super()._change(request)
        await self._catch_up([])
        return verdict


class _Line:
    """A link (see `ports.Link`) on whose other end an answer is made while it is sent."""

    def __init__(self, dispatcher: InlineDispatcher, on_messages: OnMessages) -> None:
        self._desk = dispatcher
        self._on_messages = on_messages

    def key_of(self, peer: bytes) -> str:
        """None: nobody is asked for a key."""
        return ""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        arrived = [(b"", self._desk.answer(frames))]
        asyncio.get_running_loop().call_soon(self._on_messages, arrived)
        return True

    def close(self) -> None:
        pass
