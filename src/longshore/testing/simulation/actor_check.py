"""G7: an actor's messages are applied in order of arrival, each exactly once; none is lost.

It knows from the calls and their answers which actors there must be, with which state, timers and
mail. After each call the store's rows must say the same. It does not use the core's decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.watching import OUTCOME_PREFIX
from longshore.model.actor import (
    UNDELIVERED,
    ActorVerdict,
    Message,
    NewActor,
    Reply,
    ReplyTo,
    Sent,
    Started,
    TurnInput,
)
from longshore.model.ends import Succeeded, TurnTaken
from longshore.model.ids import derive_id, watched_id
from longshore.model.job import JobState, Refused, Verdict
from longshore.model.reports import OutboxItem, OutboxJob, OutboxMessage, OutboxReply
from longshore.model.watcher import ActorWatcher, Watcher
from longshore.ports import Batch, BatchResult
from longshore.testing.simulation.actor_plans import Name
from longshore.testing.simulation.database import Committed, Edit, Sorting
from longshore.testing.simulation.known_actors import KnownActor, MailKey
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.snapshots import ActorShot, Change, MailShot, Snapshot
from longshore.testing.simulation.trace import Trace

S = JobState
Shots = Mapping[UUID, Snapshot]
Say = Callable[[str, str, UUID], None]
"""Notes in the trace who did what to which actor."""

_WAITING: Final = frozenset({S.READY, S.DELAYED, S.WAITING})
_ACTOR_VERBS: Final = frozenset(
    {"pump", "start_actors", "pause_actor", "resume_actor", "stop_actor", "edit_actor"}
    | {"tend_actors", "tell_watchers", "sort_mail"}
)
"""Calls that may wake an actor, hold it or remove it."""


class ActorCheck:
    """Every actor there must be. `micros` is the time by the store's clock."""

    def __init__(self, trace: Trace, micros: Callable[[], int], say: Say) -> None:
        self._trace = trace
        self._say = say
        self._micros = micros
        self._actors: dict[UUID, KnownActor] = {}
        self._names: dict[Name, KnownActor] = {}
        self._gone: set[UUID] = set()
        self._sent: set[UUID] = set()
        """Messages from outside that were accepted."""
        self._refused: set[UUID] = set()
        """Messages from outside that were refused at least once."""
        self._asked: dict[UUID, UUID] = {}
        """Asks from outside: of which actor."""
        self._replies: dict[UUID, Reply] = {}
        self._watched: dict[UUID, tuple[Watcher, ...]] = {}
        """Jobs of turns, and who watches them."""
        self._ended: set[tuple[UUID, int]] = set()
        """Their rounds that ended."""
        self._untold: list[tuple[UUID, int]] = []
        """Those of which the watchers have not heard."""
        self._commit = 0
        self._claimed: dict[int, int] = {}
        """By token: the commit that gave a turn to a worker."""

    def has(self, id: UUID | None) -> bool:
        """Whether it is the id of an actor, or of its next turn."""
        return id in self._actors or any(_turn_of(one) == id for one in self._actors.values())

    # what clients were told, and what runs

    def accepted(self, message: UUID) -> None:
        """A client was told that a message is in its mailbox."""
        if message not in self._sent:
            raise BrokenPromise(Promise.ACTORS, f"message {message} was answered, but not stored")

    def told(self, reply: Reply) -> None:
        """A client was told the reply to its ask."""
        known, actor = self._replies.get(reply.id), self._asked.get(reply.id)
        if known is None and actor in self._gone and reply.error is not None:
            return
        if known is None or known.result != reply.result:
            text = f"the reply {reply} to ask {reply.id} was never recorded"
            raise BrokenPromise(Promise.ACTORS, text, actor)

    def begins(self, given: TurnInput, token: int) -> None:
        """A turn begins to run: not if its actor was paused before it was given out."""
        actor = self._actors.get(given.actor)
        if actor is None or actor.paused_at is None:
            return
        if actor.paused_at <= self._claimed.get(token, 0):
            raise actor.broke(f"turn {given.turn} began under token {token}, but it is paused")

    # what one call did to the jobs that are turns

    def check_moved(self, verb: str, change: Change) -> bool:
        """Answers whether a turn, which nobody ran, moved as a call about its actor may move it."""
        _, before, after = change
        if verb not in _ACTOR_VERBS:
            return False
        if before.state in OWNED:
            return verb == "stop_actor" and after.state is S.CANCELLING
        return after.state in _WAITING and (before.state in _WAITING or verb == "resume_actor")

    # what the store did

    def check(
        self,
        commit: Committed,
        shots: Shots,
        gone: Mapping[UUID, Snapshot],
        turns: Collection[UUID],
        rows: Mapping[UUID, ActorShot],
    ) -> None:
        """What one call did. `turns` are all turns that are jobs now, `gone` those that were."""
        self._commit += 1
        if commit.verb == "tell_watchers":
            self._tell()
        ended = self._note(commit, shots)
        self._note_ends(shots)
        for job, shot in gone.items():
            if shot.state in OWNED and job not in ended:
                text = f"{commit.verb} made a turn vanish that runs"
                raise BrokenPromise(Promise.ACTORS, text, job)
        for id in rows.keys() - self._actors.keys():
            again = "come back after it was stopped" if id in self._gone else "appear"
            raise BrokenPromise(Promise.ACTORS, f"{commit.verb} made it {again}", id)
        for actor in list(self._actors.values()):
            if actor.id not in rows:
                self._remove(commit.verb, actor)
        for id, row in rows.items():
            self._check_row(commit.verb, self._actors[id], row)
            self._check_turn(commit.verb, self._actors[id], shots)
        for job in set(turns) - {_turn_of(one) for one in self._actors.values()}:
            raise BrokenPromise(Promise.ACTORS, f"{commit.verb} left a turn of nobody", job)

    def _note(self, commit: Committed, shots: Shots) -> set[UUID]:
        """What a call says that it did. Answers the turns that ended in it."""
        about, done = commit.about, commit.answer is ActorVerdict.DONE
        match commit.verb, about:
            case "pump", Batch() if isinstance(commit.answer, BatchResult):
                return self._pump(commit.process.name, about, commit.answer, shots)
            case "start_actors", tuple() if isinstance(commit.answer, list):
                for new, answer in zip(about, commit.answer, strict=True):
                    assert isinstance(new, NewActor)
                    self._start(new, answer)
            case "edit_actor", Edit() if done:
                self._edit(self._named(about.actor), about)
            case "sort_mail", Sorting() if done:
                self._named(about.actor).sort(about.number, about.action, self._micros())
            case "pause_actor" | "resume_actor" | "stop_actor", tuple() if done:
                self._control(commit.verb, self._named(about))  # type: ignore[arg-type]
        return set()

    def _named(self, name: Name) -> KnownActor:
        if (actor := self._names.get(name)) is None:
            raise BrokenPromise(Promise.ACTORS, f"there is no actor {name}, but it was changed")
        return actor

    def _start(self, new: NewActor, answer: Started | Refused) -> None:
        name = new.type, new.key
        if isinstance(answer, Refused):
            if name not in self._names:
                raise BrokenPromise(Promise.ACTORS, f"its start was refused: {answer}", new.id)
        elif name in self._names:
            if self._names[name].id != answer.id:
                raise BrokenPromise(Promise.ACTORS, f"{name} has another id", answer.id)
        elif new.id not in self._gone:  # otherwise it is a repeat, and must not bring it back
            self._actors[new.id] = self._names[name] = KnownActor(new)
            self._mark(self._actors[new.id])

    def _mark(self, actor: KnownActor) -> None:
        """Its next turn is part of its story."""
        job = _turn_of(actor)
        self._trace.owners[job] = actor.id
        self._trace.names[job] = f"{self._trace.name(actor.id)}#{actor.turn + 1}"

    def _edit(self, actor: KnownActor, edit: Edit) -> None:
        if edit.state != actor.state:
            actor.edit(edit.state, edit.restart)
            self._mark(actor)

    def _control(self, verb: str, actor: KnownActor) -> None:
        if verb == "stop_actor":
            actor.stopping = True
        elif verb == "pause_actor":
            actor.pause(self._commit)
        else:
            actor.paused_at = None

    # a batch

    def _pump(self, who: str, batch: Batch, answer: BatchResult, shots: Shots) -> set[UUID]:
        now, ended = self._micros(), set[UUID]()
        recorded: list[TurnTaken | Succeeded] = []
        for end, done in zip(batch.finishes, answer.finished, strict=True):
            if done.verdict is Verdict.RECORDED:
                ended.add(end.job)
                if isinstance(end, TurnTaken):
                    self._take(who, end, now)
                if isinstance(end, TurnTaken | Succeeded) and done.state is S.SUCCEEDED:
                    recorded.append(end)
        for end in recorded:
            sender = self._actors[end.actor] if isinstance(end, TurnTaken) else None
            for item in end.outbox:
                self._send(sender, item, now, shots)
        for message, said in zip(batch.sends, answer.sent, strict=True):
            self._take_in(message, said, now)
        for attempt in (*answer.claimed, *answer.dependents, *answer.started):
            self._claimed[attempt.token] = self._commit
        return ended

    def _take(self, who: str, end: TurnTaken, now: int) -> None:
        actor = self._actors.get(end.actor)
        if actor is None:
            raise BrokenPromise(Promise.ACTORS, "it took a turn after it was gone", end.actor)
        read = actor.take(end.number, end.turn, now)
        words = ", ".join(one.name or one.what for one in read) or "nothing"
        self._say(who, f"pump: turn {end.number} has read {words}", actor.id)
        if end.turn.pauses:
            actor.pause(self._commit)
        actor.stopping |= end.turn.stops
        self._mark(actor)

    def _send(self, sender: KnownActor | None, item: OutboxItem, now: int, shots: Shots) -> None:
        """What a turn or a job sends is there, or comes back to it."""
        match item:
            case OutboxJob(job=job):
                if job.id not in shots:
                    raise BrokenPromise(Promise.ACTORS, "a turn submitted it; it is lost", job.id)
                if job.options.watchers:
                    self._watched[job.id] = job.options.watchers
            case OutboxMessage(message=message):
                if (target := self._living(message.type, message.key)) is not None:
                    target.put(message, now)
                elif sender is not None and not sender.stopping:
                    sender.put(Message(message.id, *sender.name, UNDELIVERED), now)
            case OutboxReply(reply=reply, to=to):
                self._reply(reply, to, now)

    def _reply(self, reply: Reply, to: ReplyTo, now: int) -> None:
        if not to.type:
            self._replies.setdefault(reply.id, reply)
        elif (asker := self._living(to.type, to.key)) is not None:
            asker.put(Message(reply.id, *asker.name, to.name), now)

    def _note_ends(self, shots: Shots) -> None:
        """Of each round of a watched job that ended somebody is to be told."""
        for job in self._watched:
            shot = shots.get(job)
            if shot is not None and shot.state in TERMINAL:
                end = job, shot.round
                if end not in self._ended:
                    self._ended.add(end)
                    self._untold.append(end)

    def _tell(self) -> None:
        """The watchers are told of all that ended before, as far as they are there."""
        untold, self._untold = self._untold, []
        for job, round in untold:
            for index, watcher in enumerate(self._watched[job]):
                if not isinstance(watcher, ActorWatcher):
                    continue
                if (actor := self._living(watcher.type, watcher.key)) is not None:
                    id, name = watched_id(job, round, index), OUTCOME_PREFIX + watcher.name
                    actor.put(Message(id, *actor.name, name), self._micros())

    def _living(self, type: str, key: str) -> KnownActor | None:
        actor = self._names.get((type, key))
        return None if actor is None or actor.stopping else actor

    def _take_in(self, message: Message, said: Sent | Refused, now: int) -> None:
        """A message from outside: accepted if its actor is there, and only the first time."""
        actor, is_repeat = self._living(message.type, message.key), message.id in self._sent
        if actor is not None and message.actor not in (None, actor.id):
            actor = None  # it has only the key of the one that the callback is for
        if isinstance(said, Refused):
            if actor is not None or is_repeat:
                text = f"message {message.id} was refused: {said.message}"
                raise BrokenPromise(Promise.ACTORS, text, actor.id if actor else None)
            self._refused.add(message.id)
        elif not is_repeat:
            if actor is None:
                raise BrokenPromise(Promise.ACTORS, f"nobody accepted message {message.id}")
            self._sent.add(message.id)
            if message.reply_to is not None:
                self._asked[message.id] = actor.id
            actor.put(message, now, is_late=message.id in self._refused)

    # what is in the store

    def _remove(self, verb: str, actor: KnownActor) -> None:
        """An actor is gone: somebody stopped it, and who asked it something is told."""
        if not actor.stopping:
            raise actor.broke(f"{verb} made it vanish")
        del self._actors[actor.id], self._names[actor.name]
        self._gone.add(actor.id)
        for ask, to in actor.asks():
            if (asker := self._living(to.type, to.key)) is not None:
                asker.put(Message(ask, *asker.name, to.name), self._micros())

    def _check_row(self, verb: str, actor: KnownActor, row: ActorShot) -> None:
        right = (actor.stopping, actor.turn, actor.state, actor.starts, actor.timers)
        found = (row.stopping, row.turn, row.state, row.starts, row.timers)
        for what, must, there in zip(_FACTS, right, found, strict=True):
            if must != there:
                raise actor.broke(f"after {verb} its {what} is {there!r}, not {must!r}")
        if not actor.stopping and row.paused is (actor.paused_at is None):
            raise actor.broke(f"{verb} left it paused: {row.paused}")
        self._check_mail(verb, actor, row.mail)

    def _check_mail(self, verb: str, actor: KnownActor, mail: Sequence[MailShot]) -> None:
        keys = [(one.id, one.name) for one in mail]
        if lost := actor.mail.keys() - set(keys):
            raise actor.broke(f"after {verb} these messages are lost: {_words(lost)}")
        if twice := set(keys) - actor.mail.keys():
            raise actor.broke(f"after {verb} these messages are there again: {_words(twice)}")
        if len(keys) > len(actor.mail):
            raise actor.broke(f"after {verb} a message is there twice: {_words(keys)}")
        last = max((one.number for one in actor.mail.values()), default=0)
        for key, one in zip(keys, mail, strict=True):
            known = actor.mail[key]
            if known.number not in (0, one.number) or (not known.number and one.number <= last):
                raise actor.broke(f"{verb} gave message {one.id} the number {one.number}")
            if (known.due_at is None) is not (one.due_at is None):
                raise actor.broke(f"{verb} left message {one.id} due at {one.due_at}")
            known.number = one.number

    def _check_turn(self, verb: str, actor: KnownActor, shots: Shots) -> None:
        """An actor with mail is awake: its turn runs, is ready, failed, or backs off."""
        if actor.stopping or actor.paused_at is not None:
            return
        shot = shots.get(_turn_of(actor))
        state = None if shot is None else shot.state
        if shot is not None and (state in OWNED or state in TERMINAL or shot.failures):
            is_right = state is not S.WAITING
        elif actor.is_due:
            is_right = state is S.READY
        else:
            is_right = state in (S.READY, S.DELAYED) or not actor.waits
        if not is_right:
            raise actor.broke(f"after {verb} it has mail or timers, but its turn is {state}")

    # the end

    def unsettled(self, shots: Shots) -> tuple[str, UUID] | None:
        """An actor that has something left to do, in words."""
        if self._untold:
            job, round = self._untold[0]
            return f"its watchers were not told that round {round} ended; still so", job
        for actor in self._actors.values():
            shot = shots.get(_turn_of(actor))
            if actor.stopping:
                return "it is still being stopped", actor.id
            if shot is not None or actor.is_due or actor.waits:
                state = "not there" if shot is None else shot.state
                words = f"{len(actor.mail)} messages and {len(actor.timers)} timers wait"
                return f"{words}, its turn is {state}; still so", actor.id
        return None


_FACTS: Final = ("stop", "turn", "state", "start", "timers")


def _turn_of(actor: KnownActor) -> UUID:
    return derive_id(actor.id, actor.turn + 1)


def _words(keys: Iterable[MailKey]) -> str:
    return ", ".join(sorted(f"{id} '{name}'" for id, name in keys))
