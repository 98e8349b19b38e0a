"""What clients can ask of a dispatcher about actors (see `service`)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from math import isnan
from typing import Final, NewType, Protocol, assert_never
from uuid import UUID

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.access import LOCAL, Asker
from longshore.core.actor_limits import (
    check_listed,
    check_message,
    check_new_actor,
    check_state,
)
from longshore.core.callbacks import resolution, verified
from longshore.core.histories import What, history_job
from longshore.core.limits import MAX_DURATION_S
from longshore.core.turns import read_job, turn_job
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.errors import InvalidInput, LongshoreError, NotFound, from_code
from longshore.model.actor import (
    Actor,
    ActorPage,
    ActorVerdict,
    MailView,
    Message,
    NewActor,
    Reply,
    ReplyTo,
    Sent,
    Started,
    TurnView,
    UndeliveredSend,
)
from longshore.model.job import Refused, Submission, Submitted
from longshore.payload.values import check_packed, within
from longshore.ports import Store
from longshore.wire import actor_messages as m

Caller = NewType("Caller", bytes)
"""The client that asks. Limits for one client count by it."""

MAX_MAIL_LISTED: Final = 1_000


class ActorRuntime(Protocol):
    """What the service for actors needs of the dispatcher around it."""

    def check_room(self, jobs: int, size: int) -> None:
        """Raises `Unavailable` if the queue has no room for so many submits, of so many bytes."""

    def check_lane(self, job: Submission, caller: Caller) -> None:
        """Raises `TooLarge` if this caller's job would need a lane past a limit."""

    def submit(self, jobs: Sequence[Submission]) -> Awaitable[list[Submitted | Refused]]:
        """Commits jobs; answers one by one, in the order given."""

    def send(self, messages: Sequence[Message]) -> Awaitable[list[Sent | Refused]]:
        """Commits messages; answers one by one, in the order given."""

    def actors_started(self, actors: Sequence[NewActor]) -> None:
        """The store has these actors: their first turns are ready."""

    def actor_changed(self) -> None:
        """An actor was changed by hand: its next turn may be ready, or due at another time."""

    def actor_stopped(self) -> None:
        """An actor was stopped. If a turn of it runs, that must be stopped."""

    def sends_appeared(self) -> None:
        """There are messages of applications to deliver."""

    async def wait_reply_soon(self, waiter: Waiter[Reply], wait_s: float) -> None:
        """Returns when the waiter has what it waits for, or after `wait_s` or a moment.

        The reply to an ask that was just sent comes with the commit that has it. So the store is
        asked only after this: it has the reply if the ask was sent before.
        """

    async def wait_reply(self, waiter: Waiter[Reply], wait_s: float) -> None:
        """Returns when the waiter has what it waits for, or after `wait_s`."""


class ActorService:
    """The use cases of clients about actors, over one store."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        runtime: ActorRuntime,
        replies: Waiters[Reply],
    ) -> None:
        self._store = store
        self._settings = settings
        self._runtime = runtime
        self._replies = replies
        self._asker = LOCAL

    def asked_by(self, asker: Asker, store: Store) -> ActorService:
        """The service for one who asks, over a store that says so."""
        service = copy(self)
        service._asker, service._store = asker, store
        return service

    # starting

    async def start(self, request: m.StartActors, caller: Caller) -> list[m.StartAnswer]:
        """Starts actors, or refuses some; answers in the order given."""
        actors = request.actors
        self._runtime.check_room(len(actors), sum(len(actor.state) for actor in actors))
        refused = {
            actor.id: refusal for actor in actors if (refusal := self._wrong_start(actor, caller))
        }
        good = [actor for actor in actors if actor.id not in refused]
        answers = await self._store.start_actors(good, reuse=request.reuse) if good else []
        if good:
            self._runtime.actors_started(good)
        told = iter(answers)
        return [refused.get(actor.id) or _started(next(told)) for actor in actors]

    def _wrong_start(self, actor: NewActor, caller: Caller) -> m.StartAnswer | None:
        try:
            check_new_actor(actor, self._settings.max_value_bytes)
            check_packed(actor.state, f"the state of actor '{actor.type}'")
            turn = turn_job(actor.id, actor.type, actor.terms, actor.version, 1)
            self._runtime.check_lane(turn, caller)
            of_actor = actor.id, (actor.type, actor.key), 0, What.CREATED, actor.state
            if (history := history_job(actor.terms, *of_actor)) is not None:
                self._runtime.check_lane(history, caller)
        except LongshoreError as error:
            return m.StartAnswer(actor.id, code=error.code, message=str(error))
        return None

    # messages

    async def send(self, request: m.Send) -> list[m.SendAnswer]:
        """Puts messages into mailboxes, or refuses some; answers in the order given."""
        if not request.wait_s:
            return await self._send(request.messages)
        if len(request.messages) != 1:
            raise InvalidInput("SEND with wait_s is for a single message; send the others alone")
        _check_wait(request.wait_s)
        [ask] = request.messages
        waiter: Waiter[Reply] = Waiter((ask.id,), False)
        with self._waiting(waiter, (ask.id,)):
            [answer] = await self._send(request.messages)
            if not answer.code and ask.reply_to is not None:
                await self._runtime.wait_reply_soon(waiter, request.wait_s)
                await self._wait(waiter, (ask.id,), request.wait_s)
        return [structs.replace(answer, reply=waiter.ended.get(ask.id))]

    async def _send(self, messages: Sequence[Message]) -> list[m.SendAnswer]:
        self._runtime.check_room(len(messages), sum(len(one.args) for one in messages))
        refused = {one.id: refusal for one in messages if (refusal := self._wrong_message(one))}
        good = [one for one in messages if one.id not in refused]
        answers = iter(await self._runtime.send(good) if good else [])
        return [refused.get(one.id) or _sent(next(answers)) for one in messages]

    def _wrong_message(self, message: Message) -> m.SendAnswer | None:
        try:
            check_message(message, self._settings.max_value_bytes)
            if message.args:
                check_packed(message.args, f"message '{message.name}'")
            if message.reply_to is not None and message.reply_to != ReplyTo():
                raise InvalidInput(f"message '{message.name}': replies come to who asks only")
        except LongshoreError as error:
            return m.SendAnswer(message.id, error.code, str(error))
        return None

    async def resolve(self, request: m.Resolve) -> ActorVerdict:
        """Gives a callback its value: a message to its actor. Only the first one counts."""
        value = request.value
        self._runtime.check_room(1, len(value or b""))
        within(value or b"", "the value of a callback", self._settings.max_value_bytes)
        if value is not None:
            check_packed(value, "the value of a callback")
        callback = verified(await self._store.callback_secret(), request.token)
        [answer] = await self._runtime.send([resolution(callback, value)])
        if isinstance(answer, Sent):
            return ActorVerdict.ALREADY if answer.existing else ActorVerdict.DONE
        if answer.code == NotFound.code:
            return ActorVerdict.NOT_FOUND
        raise from_code(answer.code, answer.message)

    async def replies(self, request: m.AwaitReplies) -> list[Reply]:
        """The replies to asks: those that are there, or else the first that comes in time."""
        _check_wait(request.wait_s)
        waiter: Waiter[Reply] = Waiter(request.asks, False)
        with self._waiting(waiter, request.asks):
            await self._wait(waiter, request.asks, request.wait_s)
        return list(waiter.ended.values())

    @contextmanager
    def _waiting(self, waiter: Waiter[Reply], asks: Sequence[UUID]) -> Iterator[None]:
        self._replies.add(waiter)
        try:
            yield
        finally:
            self._replies.remove(waiter, asks)

    async def _wait(self, waiter: Waiter[Reply], asks: Sequence[UUID], wait_s: float) -> None:
        """Waits for a reply, which may be in the store already."""
        if waiter.done.is_set():
            return
        for reply in await self._store.replies(asks):
            self._replies.tell(reply)
        if waiter.missing and not waiter.done.is_set():
            longest_s = self._settings.max_wait_s
            await self._runtime.wait_reply(waiter, min(max(wait_s, 0.0), longest_s))

    # showing

    async def show(self, type: str, key: str) -> Actor:
        """One actor, as its last turn left it."""
        actor = await self._store.actor(type, key)
        if actor is None:
            raise _nobody(type, key)
        return actor

    async def read(self, request: m.ReadActor, caller: Caller) -> bool:
        """Submits a job that calls a handler which only reads."""
        check_message(
            Message(request.id, request.type, request.key, request.name, request.args),
            self._settings.max_value_bytes,
        )
        if request.within_s is not None and not 0 < request.within_s <= MAX_DURATION_S:
            raise InvalidInput(f"within_s is {request.within_s!r}; give seconds, more than 0")
        actor = await self.show(request.type, request.key)
        job = read_job(request.id, actor, request.name, request.args, request.within_s)
        self._runtime.check_room(1, len(job.args))
        self._runtime.check_lane(job, caller)
        [answer] = await self._runtime.submit([job])
        if isinstance(answer, Refused):
            raise from_code(answer.code, answer.message)
        return True

    async def actors(self, request: m.ListActors) -> ActorPage:
        """Actors by type and key."""
        wanted = request.wanted
        if wanted.fields and wanted.type is None:
            raise InvalidInput("actors are listed by the fields of one type; give the type")
        check_listed("the list", wanted.fields)
        return await self._store.actors(structs.replace(wanted, limit=max(0, wanted.limit)))

    async def turns(self, request: m.ListTurns) -> list[TurnView]:
        """The last turns of an actor, the newest first."""
        turns = await self._store.turns(request.type, request.key)
        if not turns:
            raise _nobody(request.type, request.key)
        return turns

    async def mail(self, request: m.ListMail) -> list[MailView]:
        """The first messages that an actor has not read."""
        mail = await self._store.mail(request.type, request.key, max(1, request.most))
        if not mail:
            await self.show(request.type, request.key)
        return mail

    async def undelivered(self, request: m.ListUndelivered) -> list[UndeliveredSend]:
        """The messages of applications' transactions that could not be delivered."""
        return await self._store.undelivered_sends(max(1, request.most))

    # changing: a repeat changes nothing

    async def sort_undelivered(self, request: m.SortUndelivered) -> bool:
        """Has such a message delivered again, or drops it; whether it was there."""
        found = await self._store.sort_undelivered(request.message, again=request.again)
        if found and request.again:
            self._runtime.sends_appeared()
        return found

    async def pause(self, request: m.PauseActor) -> ActorVerdict:
        """Pauses an actor, or lets it go on."""
        verdict = await self._store.pause_actor(request.type, request.key, request.paused)
        return self._changed(verdict)

    async def stop(self, request: m.StopActor) -> ActorVerdict:
        """Removes an actor, now or after the turn that runs."""
        verdict = await self._store.stop_actor(request.type, request.key, by=self._asker.by)
        self._runtime.actor_stopped()
        return verdict

    async def edit(self, request: m.EditActor) -> ActorVerdict:
        """Replaces the state of an actor between two turns."""
        check_state(request.state, self._settings.max_value_bytes)
        check_packed(request.state, f"the state of actor '{request.type}'")
        check_listed(f"actor '{request.type}'", request.listed or {})
        if request.version < 1:
            raise InvalidInput(f"version is {request.version}; it must be 1 or more")
        verdict = await self._store.edit_actor(
            request.type,
            request.key,
            request.state,
            request.version,
            turn=request.turn,
            restart=request.restart,
            listed=request.listed,
        )
        return self._changed(verdict)

    async def sort_mail(self, request: m.SortMail) -> ActorVerdict:
        """Parks a message, puts it back or drops it."""
        names = (request.type, request.key, request.number)
        return self._changed(await self._store.sort_mail(*names, request.action))

    def _changed(self, verdict: ActorVerdict) -> ActorVerdict:
        if verdict in (ActorVerdict.DONE, ActorVerdict.ALREADY):
            self._runtime.actor_changed()
        return verdict


async def perform_for_actors(
    service: ActorService, request: m.ActorRequest, caller: Caller
) -> object:
    """Does what a request about actors asks for; answers with what OK carries."""
    match request:
        case m.StartActors():
            return await service.start(request, caller)
        case m.Send():
            return await service.send(request)
        case m.Resolve():
            return await service.resolve(request)
        case m.AwaitReplies():
            return await service.replies(request)
        case m.ShowActor():
            return await service.show(request.type, request.key)
        case m.ReadActor():
            return await service.read(request, caller)
        case m.ListActors():
            return await service.actors(request)
        case m.ListTurns():
            return await service.turns(request)
        case m.ListMail():
            return await service.mail(request)
        case m.PauseActor():
            return await service.pause(request)
        case m.StopActor():
            return await service.stop(request)
        case m.EditActor():
            return await service.edit(request)
        case m.SortMail():
            return await service.sort_mail(request)
        case m.ListUndelivered():
            return await service.undelivered(request)
        case m.SortUndelivered():
            return await service.sort_undelivered(request)
        case _:
            assert_never(request)


def _started(answer: Started | Refused) -> m.StartAnswer:
    if isinstance(answer, Refused):
        return m.StartAnswer(answer.id, code=answer.code, message=answer.message)
    return m.StartAnswer(answer.id, answer.existing)


def _sent(answer: Sent | Refused) -> m.SendAnswer:
    if isinstance(answer, Refused):
        return m.SendAnswer(answer.id, answer.code, answer.message)
    return m.SendAnswer(answer.id)


def _check_wait(wait_s: float) -> None:
    if isnan(wait_s):
        raise InvalidInput(f"wait_s is {wait_s}; give seconds, 0 or more")


def _nobody(type: str, key: str) -> NotFound:
    return NotFound(
        f"there is no actor {type} '{key}'; `longshore actors` lists those there are, and "
        f"{type}.start(…) starts one"
    )
