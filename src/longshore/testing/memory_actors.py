"""The actors of `MemoryStore`: the plainest thing that keeps the port's contract for them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import structs

from longshore.core import effects, turns
from longshore.core.histories import What, history_job
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.placement import first_bytes
from longshore.core.turns import Step, TurnJob
from longshore.core.watching import messages_of, nobody_heard
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorPage,
    ActorStatus,
    ActorVerdict,
    Delivered,
    MailAction,
    MailView,
    Message,
    NewActor,
    Reply,
    ReplyTo,
    Sent,
    Started,
    TurnInput,
    TurnView,
    UndeliveredSend,
)
from longshore.model.attempt import Attempt
from longshore.model.batch import BATCH_BYTES, Batch
from longshore.model.callback import USUAL_TERMS, CallbackTerms
from longshore.model.ends import End, PutAside, ReadDone, Succeeded, TurnTaken
from longshore.model.ids import derive_id
from longshore.model.job import Finished, JobState, Refused, Submission, Submitted, Verdict
from longshore.model.notice import Notice
from longshore.model.reports import OutboxGroup, OutboxJob, OutboxMessage, OutboxReply
from longshore.model.worker import SessionKey
from longshore.payload.callback_jobs import is_callback, with_key
from longshore.ports import Hint, Tended, Told
from longshore.store import actor_rows
from longshore.store.callback_rows import jobs_for
from longshore.store.rows import micros
from longshore.testing.memory_groups import MemoryGroups
from longshore.testing.memory_rows import ActorRow, JobRow, MailRow, Receipt, TurnRow
from longshore.testing.memory_schedules import MemorySchedules
from longshore.testing.memory_subjects import subjects


class MemoryActors(MemoryGroups, MemorySchedules):
    """The verbs of actors, and what the pump does for them."""

    @abstractmethod
    def _submit(
        self, job: Submission, ready: Counter[int], slot: SessionKey | None, started: list[Attempt]
    ) -> Submitted | Refused: ...

    # the pump

    def _is_next_turn(self, row: JobRow, end: TurnTaken) -> bool:
        actor = self._actor_of(row)
        return actor is not None and actor.id == end.actor and actor.last.n + 1 == end.number

    def _take_turn(self, row: JobRow, end: TurnTaken) -> None:
        """The actor is as its turn leaves it; the turn's job, which has ended, is gone."""
        actor, turn = self._actor_of(row), end.turn
        assert actor is not None
        self._drop_job(row)
        read = min(max(turn.read, actor.last.read), actor.last_number)
        timers = turns.set_at(turn.timers, micros(self._now))
        took = TurnRow(end.number, self._now, row.job.worker, read, turn.version, timers)
        took.state = turn.state
        for number in turn.parks:
            if number in actor.mail:
                actor.mail[number].due_at = actor_rows.NEVER
        actor.take(took, turn.read_delayed)
        actor.listed = actor.listed if turn.listed is None else dict(turn.listed)
        if not turn.stops:
            self._note_history(actor, What.UPDATED)
        actor.paused |= turn.pauses
        if turn.stops:
            actor.stopping = True
            self._stopped.add(actor.name)
        self._touched.add(actor.name)

    def _post(
        self, batch: Batch, finished: Sequence[Finished], by_ends: Counter[int]
    ) -> tuple[list[Sent | Refused], list[Reply], Counter[int]]:
        """Delivers what the recorded ends send, then what comes from outside; wakes who got mail.

        Answers also what became ready by messages from outside alone.
        """
        replies, by_sends = list[Reply](), Counter[int]()
        for end, answer in zip(batch.finishes, finished, strict=True):
            if answer.verdict is Verdict.RECORDED:
                self._post_outbox(end, answer.state, by_ends, replies)
        for name in sorted(self._stopped):
            replies += self._remove(self._actors[name])
        self._stopped = set()
        by_ends.update(self._heard)
        self._heard.clear()
        woken_by_ends, self._touched = self._touched, set()
        sent = [self._take_in(message, batch.max_mailbox) for message in batch.sends]
        for name in sorted(woken_by_ends):
            self._wake_actor(name, by_ends)
        for name in sorted(self._touched - woken_by_ends):
            self._wake_actor(name, by_sends)
        self._touched = set()
        return sent, replies, by_sends

    def _post_outbox(
        self, end: End, state: JobState | None, ready: Counter[int], replies: list[Reply]
    ) -> None:
        """What an attempt caused; what is not accepted it hears of, or its history does."""
        if isinstance(end, PutAside) and (row := self._jobs.get(end.job)) and row.actor:
            self._touched.add(row.actor)
        if isinstance(end, ReadDone):
            reply = actor_rows.storable_reply(end.reply)
            receipt = Receipt(self._now, UUID(int=0), is_ask=True)
            receipt.reply = reply
            self._receipts.setdefault(reply.id, receipt)
            replies.append(reply)
            self._hint(Hint.ENDED)
        if not isinstance(end, Succeeded | TurnTaken) or state is not JobState.SUCCEEDED:
            return
        for index, item in enumerate(end.outbox):
            if isinstance(item, OutboxJob):
                answer = self._submit(item.job, ready, None, [])
                if isinstance(answer, Refused):
                    lost = actor_rows.undelivered_job(item.job, answer.message)
                    self._return(end, index, lost, answer)
            elif isinstance(item, OutboxGroup):
                stored = self._submit_group(item.part, ready)
                self._sent_groups.add(item.part.head.id)
                if isinstance(stored, Refused):
                    lost = actor_rows.undelivered_group(item.part.head, stored.message)
                    self._return(end, index, lost, stored)
            elif isinstance(item, OutboxMessage):
                if (refused := self._deliver_message(item.message)) is not None:
                    lost = actor_rows.undelivered(item.message, refused.message)
                    self._return(end, index, lost, refused)
            elif isinstance(item, OutboxReply):
                replies += self._reply(item.reply, item.to)

    def _return(
        self, end: Succeeded | TurnTaken, index: int, lost: Message, refused: Refused
    ) -> None:
        """A turn hears of what was not accepted. For a job its history notes it."""
        if isinstance(end, TurnTaken):
            sender = next(one for one in self._actors.values() if one.id == end.actor)
            if not sender.stopping:
                self._put(sender, lost)
        else:
            self._jobs[end.job].note(effects.refused_item(index, refused.message))

    def _take_in(self, message: Message, most: int) -> Sent | Refused:
        """A message from outside."""
        if message.id in self._receipts:
            return Sent(message.id, existing=message.actor is not None)
        actor = self._actors.get((message.type, message.key))
        if actor is not None and not actor.stopping and len(actor.mail) >= most:
            return actor_rows.mailbox_full(message, most)
        if (refused := self._deliver_message(message)) is not None:
            return refused
        assert actor is not None
        is_ask = actor_rows.is_from_outside(message.reply_to)
        at = self._now if message.actor is None else datetime.max.replace(tzinfo=UTC)
        self._receipts[message.id] = Receipt(at, actor.id, is_ask)
        return Sent(message.id)

    def _deliver_message(self, message: Message) -> Refused | None:
        """Puts a message into its mailbox, if there is one."""
        if (why := actor_rows.unstorable_message(message)) is not None:
            return actor_rows.message_not_accepted(message, why)
        actor = self._actors.get((message.type, message.key))
        if actor is None or actor.stopping or message.actor not in (None, actor.id):
            return actor_rows.nobody(message)
        self._put(actor, message)
        return None

    def _put(self, actor: ActorRow, message: Message) -> None:
        now = micros(self._now)
        number, due_at = actor.last_number + 1, actor_rows.due(message, now)
        mail = MailRow(number, message.id, message.name, message.args, now, due_at)
        mail.reply_to = message.reply_to
        actor.mail[number] = mail
        self._touched.add(actor.name)

    def _reply(self, reply: Reply, to: ReplyTo) -> list[Reply]:
        """Brings a reply to the actor that asked, or keeps it; answers what it kept."""
        if not actor_rows.is_from_outside(to):
            self._deliver_message(actor_rows.reply_message(reply, to))
            return []
        receipt = self._receipts.get(reply.id)
        if receipt is None or not receipt.is_ask or receipt.reply is not None:
            return []
        receipt.reply, receipt.at = actor_rows.storable_reply(reply), self._now
        self._hint(Hint.ENDED)
        return [receipt.reply]

    def _note_history(self, actor: ActorRow, what: What) -> None:
        last = actor.last
        job = history_job(actor.terms, actor.id, actor.name, last.n, what, last.state)
        if job is not None:
            self._submit(job, self._heard, None, [])

    # the next turn

    def _actor_of(self, row: JobRow) -> ActorRow | None:
        return None if row.actor is None else self._actors.get(row.actor)

    def _next_job(self, actor: ActorRow) -> JobRow | None:
        return self._jobs.get(derive_id(actor.id, actor.last.n + 1))

    def _wake_actor(self, name: tuple[str, str], ready: Counter[int]) -> None:
        """Brings an actor's next turn to where its mail and its timers want it."""
        actor = self._actors.get(name)
        if actor is None or actor.stopping:
            return
        row, now = self._next_job(actor), micros(self._now)
        job = None
        if row is not None:
            run_at = None if row.job.run_at is None else micros(row.job.run_at)
            job = TurnJob(row.state, row.job.failures, run_at)
        step, delay_s = turns.next_step(job, actor.wake(), now, paused=actor.paused)
        if row is not None and step in (Step.REMOVE, Step.ANEW):
            self._drop_job(row)
        if step in (Step.MAKE, Step.ANEW):
            self._make_turn(actor, delay_s, ready)
        if row is not None and step is Step.HOLD:
            self._apply(row, effects.HOLD[row.state])
        if row is not None and step is Step.GO:
            expires_s = row.job.options.expires_s
            self._apply(row, turns.go(row.state, delay_s, expires_s))
            ready.update([row.lane.hash] * (row.state is JobState.READY))

    def _make_turn(self, actor: ActorRow, delay_s: float | None, ready: Counter[int]) -> None:
        last = actor.last
        of_turn = actor.id, actor.type, actor.terms, last.version, last.n + 1, delay_s
        job = turns.turn_job(*of_turn, last.worker)
        answer = self._submit(job, ready, None, [])
        assert isinstance(answer, Submitted), answer
        row = self._jobs[job.id]
        row.actor = actor.name
        if row.state is JobState.READY:
            self._made.append((row, ready))

    def _filled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts as their workers get them: with results, and turns with their events."""
        return [self._turn_filled(one) for one in super()._filled(attempts)]

    def _read_filled(self, attempt: Attempt) -> Attempt:
        wanted = turns.read_call(attempt.args).actor
        actor = next((one for one in self._actors.values() if one.id == wanted), None)
        return actor_rows.read_attempt(attempt, None if actor is None else self._input(actor))

    def _input(self, actor: ActorRow) -> TurnInput:
        last, now = actor.last, micros(self._utc())
        who = actor.id, actor.type, actor.key, last.n + 1
        return TurnInput(*who, last.state, last.version, now, last.timers, (), last.worker)

    def _turn_filled(self, attempt: Attempt) -> Attempt:
        if attempt.options.reads:
            return self._read_filled(attempt)
        if is_callback(attempt):
            return with_key(attempt, self._secret)
        actor = self._actor_of(self._jobs[attempt.id])
        if actor is None:
            return attempt
        last, given = actor.last, self._input(actor)
        mail = [one.event() for one in actor.unread()]
        delayed = [one.event() for one in actor.delayed()]
        return actor_rows.turn_attempt(
            attempt,
            given,
            mail,
            delayed,
            starts=last.starts,
            paused=actor.paused,
            secret=self._secret,
            error=self._jobs[attempt.id].job.error,
        )

    # starting and stopping

    async def start_actors(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> list[Started | Refused]:
        self._now = self._utc()
        answers = [self._start_actor(actor, reuse) for actor in actors]
        self._hint(Hint.WORK)
        return answers

    def _start_actor(self, new: NewActor, reuse: bool) -> Started | Refused:
        if (why := actor_rows.unstorable_actor(new, micros(self._now))) is not None:
            return actor_rows.actor_not_accepted(new, why)
        known = self._actors.get((new.type, new.key))
        if known is not None and known.id == new.id:
            return Started(new.id)
        if known is not None and reuse and not known.stopping:
            return Started(known.id, existing=True)
        if known is not None:
            return actor_rows.actor_exists(new, stopping=known.stopping)
        if any(one.id == new.id for one in self._actors.values()):
            return actor_rows.id_taken(new)
        if new.id in self._receipts:
            return Started(new.id)
        actor = ActorRow(new.id, new.type, new.key, new.terms, self._now)
        actor.listed = dict(new.listed)
        actor.turns.append(
            TurnRow(0, self._now, None, 0, new.version, (), state=new.state, starts=True)
        )
        self._actors[actor.name] = actor
        self._note_history(actor, What.CREATED)
        self._wake_actor(actor.name, Counter())
        return Started(new.id)

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        self._now = self._utc()
        actor = self._actors.get((type, key))
        if actor is None:
            return ActorVerdict.NOT_FOUND
        if actor.stopping:
            return ActorVerdict.ALREADY
        actor.stopping = True
        row = self._next_job(actor)
        if row is None or row.state not in OWNED:
            self._remove(actor)
            self._wake_touched()
        elif row.state in effects.CANCEL:
            self._apply(row, effects.CANCEL[row.state], by)
            self._hint(Hint.CANCEL)
        return ActorVerdict.DONE

    def _remove(self, actor: ActorRow) -> list[Reply]:
        """An actor is gone, with all that is its own. Asks are answered: those from outside."""
        if (row := self._next_job(actor)) is not None:
            self._drop_job(row)
        self._note_history(actor, What.REMOVED)
        del self._actors[actor.name]
        self._receipts = {
            id: one
            for id, one in self._receipts.items()
            if one.actor != actor.id or one.at.year < datetime.max.year
        }
        self._receipts.setdefault(actor.id, Receipt(self._now, actor.id, is_ask=False))
        asks = [id for id, one in self._receipts.items() if one.actor == actor.id]
        replies = [(id, ReplyTo()) for id in asks]
        replies += [
            (one.id, one.reply_to)
            for _, one in sorted(actor.mail.items())
            if one.reply_to is not None and not actor_rows.is_from_outside(one.reply_to)
        ]
        kept = []
        for id, to in replies:
            kept += self._reply(actor_rows.stopped_reply(id, actor.type, actor.key), to)
        return kept

    def _wake_touched(self) -> None:
        touched, self._touched = self._touched, set()
        for name in sorted(touched):
            self._wake_actor(name, Counter())
        self._hint(Hint.WORK)

    async def tend_actors(self, most: int = 1000) -> Tended:
        self._now = self._utc()
        rows = [(one, self._next_job(one)) for one in self._actors.values() if one.stopping]
        over = [actor for actor, row in rows if row is None or row.state not in OWNED]
        replies = [reply for actor in over[:most] for reply in self._remove(actor)]
        self._wake_touched()
        since = self._now - timedelta(seconds=actor_rows.RECEIPTS_S)
        old = [id for id, one in self._receipts.items() if one.at <= since]
        for id in old[:most]:
            del self._receipts[id]
        return Tended(tuple(replies), more=max(len(over), len(old)) > most)

    def _note_watched(self, row: JobRow) -> None:
        """The watchers of a job that ended are to hear of it, as it ended."""
        job = row.job
        if job.options.watchers:
            how = job.state, job.result, job.error
            watchers, raw = job.options.watchers, job.options.raw
            self._notices.append(Notice(job.id, job.round, *how, watchers, raw=raw))

    async def tell_watchers(self, most: int = 100, callbacks: CallbackTerms = USUAL_TERMS) -> Told:
        self._now = self._utc()
        notices = first_bytes(self._notices[:most], lambda one: len(one.result or b""), BATCH_BYTES)
        self._notices = self._notices[len(notices) :]
        for notice in notices:
            for message in messages_of(notice):
                if self._deliver_message(message) is not None and notice.subject in self._jobs:
                    self._jobs[notice.subject].note(nobody_heard(message))
        touched, self._touched = self._touched, set()
        ready: Counter[int] = Counter()
        for name in sorted(touched):
            self._wake_actor(name, ready)
        rows = subjects(notices, self._jobs, self._groups)
        for job in jobs_for(notices, rows, micros(self._now), callbacks):
            self._submit(job, ready, None, [])
        self._hint(*[Hint.WORK] * bool(ready))
        told = self._tell_schedules(notices)
        return Told(len(notices), ready, bool(self._notices), told)

    # No application has a transaction here.

    async def deliver_sends(self, most: int = 1000) -> Delivered:
        return Delivered()

    async def undelivered_sends(self, most: int = 100) -> list[UndeliveredSend]:
        return []

    async def sort_undelivered(self, id: UUID, *, again: bool) -> bool:
        return False

    async def callback_secret(self) -> bytes:
        return self._secret

    async def replies(self, ids: Sequence[UUID]) -> list[Reply]:
        found = (self._receipts.get(one) for one in ids)
        return [one.reply for one in found if one is not None and one.reply is not None]

    # control

    def _live_actor(self, type: str, key: str) -> ActorRow | None:
        self._now = self._utc()
        actor = self._actors.get((type, key))
        return None if actor is None or actor.stopping else actor

    async def pause_actor(self, type: str, key: str, paused: bool) -> ActorVerdict:
        if (actor := self._live_actor(type, key)) is None:
            return ActorVerdict.NOT_FOUND
        row = self._next_job(actor)
        failed = row is not None and row.state in TERMINAL
        if actor.paused == paused and (paused or not failed):
            return ActorVerdict.ALREADY
        actor.paused = paused
        if row is not None and failed and not paused:
            self._try_again(row)
        self._wake_actor(actor.name, Counter())
        self._hint(*[Hint.WORK] * (not paused))
        return ActorVerdict.DONE

    def _try_again(self, row: JobRow) -> None:
        expires_s = row.job.options.expires_s
        effect = effects.of_retry(row.job.round, turns.RESUME, None, expires_s)
        if row.state in effect:
            self._apply(row, effect[row.state])
        else:
            self._drop_job(row)

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
        if (actor := self._live_actor(type, key)) is None:
            return ActorVerdict.NOT_FOUND
        last, row = actor.last, self._next_job(actor)
        if turn is not None and turn != last.n:
            is_repeat = (turn + 1, None, state, version) == (
                last.n,
                last.worker,
                last.state,
                last.version,
            )
            return ActorVerdict.DONE if is_repeat else ActorVerdict.CHANGED
        if row is not None and row.state in OWNED:
            return ActorVerdict.BUSY
        if row is not None:
            self._drop_job(row)
        timers = () if restart else last.timers
        edited = TurnRow(last.n + 1, self._now, None, last.read, version, timers)
        edited.state, edited.starts = state, restart or last.starts
        actor.take(edited)
        actor.listed = actor.listed if listed is None else dict(listed)
        self._note_history(actor, What.UPDATED)
        self._wake_actor(actor.name, Counter())
        self._hint(Hint.WORK)
        return ActorVerdict.DONE

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        actor = self._live_actor(type, key)
        if actor is None or (mail := actor.mail.get(number)) is None:
            return ActorVerdict.NOT_FOUND
        row = self._next_job(actor)
        if row is not None and row.state in OWNED:
            return ActorVerdict.BUSY
        if action is not MailAction.DROP and mail.is_parked is (action is MailAction.PARK):
            return ActorVerdict.ALREADY
        if action is MailAction.DROP:
            del actor.mail[number]
        else:
            now = micros(self._now)
            mail.due_at = actor_rows.NEVER if action is MailAction.PARK else now
        self._wake_actor(actor.name, Counter())
        self._hint(Hint.WORK)
        return ActorVerdict.DONE

    # reading

    async def actor(self, type: str, key: str) -> Actor | None:
        actor = self._actors.get((type, key))
        return None if actor is None else self._shown_actor(actor)

    async def actors(self, wanted: ActorFilter) -> ActorPage:
        names = sorted(name for name in self._actors if wanted.after is None or name > wanted.after)
        shown = (self._shown_actor(self._actors[name]) for name in names)
        found = [
            structs.replace(one, state=b"")
            for one in shown
            if wanted.type in (None, one.type) and actor_rows.is_wanted(one, wanted)
        ][: max(0, wanted.limit)]
        is_full = found and len(found) == wanted.limit
        return ActorPage(tuple(found), (found[-1].type, found[-1].key) if is_full else None)

    def _shown_actor(self, actor: ActorRow) -> Actor:
        row, last = self._next_job(actor), actor.last
        job = None if row is None else row.job
        return Actor(
            id=actor.id,
            type=actor.type,
            key=actor.key,
            status=self._status(actor, None if row is None else row.state),
            terms=actor.terms,
            created_at=actor.created_at,
            turn=last.n,
            state=last.state,
            version=last.version,
            timers=last.timers,
            unread=sum(not one.is_parked for one in actor.mail.values()),
            turned_at=last.at if last.n else None,
            worker=last.worker,
            job=None if job is None else job.id,
            next_at=job.run_at if job and job.state is JobState.DELAYED else None,
            error=None if job is None else job.error,
            listed=actor.listed,
        )

    def _status(self, actor: ActorRow, job: JobState | None) -> ActorStatus:
        return turns.status_of(paused=actor.paused, stopping=actor.stopping, job=job)

    async def turns(self, type: str, key: str) -> list[TurnView]:
        actor = self._actors.get((type, key))
        return [] if actor is None else [one.view() for one in reversed(actor.turns)]

    async def mail(self, type: str, key: str, most: int = 100) -> list[MailView]:
        actor = self._actors.get((type, key))
        found = [] if actor is None else sorted(actor.mail.items())[: max(0, most)]
        return [one.view() for _, one in found]
