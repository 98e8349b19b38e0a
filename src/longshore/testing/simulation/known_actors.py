"""Actors as they must be, by what clients and turns were told was done to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.turns import REPLY_PREFIX
from longshore.model.actor import MailAction, Message, NewActor, ReplyTo, Timer, Turn
from longshore.store.actor_rows import NEVER
from longshore.testing.simulation.actor_plans import (
    CALLED,
    DROPPED,
    PARKED,
    Content,
    Entry,
    Name,
    content_of,
    log_in,
)
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.turn_bodies import value_in

MICROS: Final = 1_000_000
MailKey = tuple[UUID, str]
"""A message in its mailbox. The reply to an ask has its id, and another name."""


class Mailed:
    """A message that was accepted and is not read. The store gives it its number."""

    def __init__(self, content: Content | None, due_at: int | None, to: ReplyTo | None) -> None:
        self.content = content
        self.due_at = due_at
        self.reply_to = to
        self.number = 0
        self.value = 0
        """Of a callback: what it was resolved with."""

    @property
    def is_parked(self) -> bool:
        return self.due_at == NEVER


class KnownActor:
    """One actor as it must be."""

    def __init__(self, new: NewActor) -> None:
        self.id = new.id
        self.name: Name = (new.type, new.key)
        self.state = new.state
        self.turn = 0
        self.starts = True
        self.paused_at: int | None = None
        """The commit that paused it."""
        self.stopping = False
        self.timers: tuple[Timer, ...] = ()
        self.mail: dict[MailKey, Mailed] = {}
        self._order: dict[str, int] = {}
        """By sender: which of its messages was applied last."""

    def broke(self, text: str) -> BrokenPromise:
        """What to raise if something is not as it must be."""
        return BrokenPromise(Promise.ACTORS, text, self.id)

    def pause(self, commit: int) -> None:
        """It was paused, if it was not before."""
        self.paused_at = commit if self.paused_at is None else self.paused_at

    def put(self, message: Message, now: int, *, is_late: bool = False) -> None:
        """A message was accepted.

        It is late if a repeat of it was refused before: then its sender has sent others since.
        """
        key = message.id, message.name
        if key in self.mail:
            raise self.broke(f"message {message.id} was accepted a second time")
        due_at = now + round(message.delay_s * MICROS) if message.delay_s else None
        in_order = message.name == "note" and not is_late
        content = content_of(message.args) if in_order else None
        self.mail[key] = mailed = Mailed(content, due_at, message.reply_to)
        if message.name == REPLY_PREFIX + CALLED and message.args:
            mailed.value = value_in(message.args)

    # a turn that counts

    def take(self, number: int, turn: Turn, now: int) -> list[Entry]:
        """A turn was recorded: it follows from the one before, and from what was in the mail.

        Answers what it has read.
        """
        if number != self.turn + 1:
            raise self.broke(f"turn {number} was recorded after turn {self.turn}")
        log, before = log_in(turn.state), log_in(self.state)
        if log[: len(before)] != before:
            raise self.broke(f"turn {number} began with another state than turn {self.turn} left")
        read = log[len(before) :]
        for entry in read:
            self._apply(entry, now)
        parked = {one.number for one in self.mail.values() if one.is_parked}
        if not set(turn.parks) <= parked:
            raise self.broke(f"turn {number} put {turn.parks} aside, and not what it had failed at")
        self.turn, self.state, self.starts = number, turn.state, False
        self.timers = tuple(_set(turn.timers, now))
        return read

    def _apply(self, entry: Entry, now: int) -> None:
        if entry.what.startswith((PARKED, DROPPED)):
            self._give_up(entry, now)
        elif entry.what == "start":
            if not self.starts:
                raise self.broke("it was started a second time")
            self.starts = False
        elif entry.what == "timer":
            known = {timer.name: timer.at for timer in self.timers}
            if known.get(entry.name) != entry.at or entry.at > now:
                raise self.broke(f"timer {entry.name} fired at {now}, not {known.get(entry.name)}")
        else:
            self._read(entry, now)

    def _give_up(self, entry: Entry, now: int) -> None:
        """An event failed for good: it was its turn, and a message is put aside or dropped."""
        fate, what = entry.what.split(" ", 1)
        key = (entry.id, entry.name) if entry.id is not None else None
        mailed = self.mail.get(key) if key is not None else None
        self._apply(structs.replace(entry, what=what), now)
        if fate == PARKED.strip():
            if key is None or mailed is None:
                raise self.broke(f"it put {entry} aside, which is no message")
            mailed.content, mailed.due_at = None, NEVER
            self.mail[key] = mailed

    def sort(self, number: int, action: MailAction, now: int) -> None:
        """Somebody put a message aside, put it back, or removed it."""
        found = [key for key, one in self.mail.items() if one.number == number]
        if not found:
            raise self.broke(f"message {number} was sorted, which is not in its mail")
        mailed = self.mail[found[0]]
        if action is MailAction.DROP:
            del self.mail[found[0]]
        elif mailed.is_parked is (action is MailAction.PARK):
            raise self.broke(f"message {number} was sorted ({action}) a second time")
        else:
            mailed.content = None
            mailed.due_at = NEVER if action is MailAction.PARK else now

    def _read(self, entry: Entry, now: int) -> None:
        """A message is applied: once, when it is due, and after those that came before it."""
        assert entry.id is not None
        mailed = self.mail.pop((entry.id, entry.name), None)
        if mailed is None:
            raise self.broke(f"message {entry.id} '{entry.name}' was applied, but not in its mail")
        if mailed.value != entry.at:
            raise self.broke(f"callback {entry.id} had value {entry.at}, not {mailed.value}")
        if mailed.due_at is not None:
            if mailed.due_at > now:
                raise self.broke(f"message {entry.id} was applied {mailed.due_at - now} µs early")
            return
        first = min((one.number for one in self.mail.values() if one.due_at is None), default=None)
        if first is not None and first < mailed.number:
            raise self.broke(f"message {mailed.number} was applied before message {first}")
        if mailed.content is not None:
            self._check_sender(mailed.content)

    def _check_sender(self, content: Content) -> None:
        last = self._order.get(content.sender, -1)
        if content.no <= last:
            text = f"message {content.no} of {content.sender} was applied after its message {last}"
            raise self.broke(text)
        self._order[content.sender] = content.no

    def edit(self, state: bytes, restart: bool) -> None:
        """Somebody replaced its state, who has seen the last one."""
        before = log_in(self.state)
        if log_in(state)[: len(before)] != before:
            raise self.broke(f"an edit undid turn {self.turn}, which its author had not seen")
        self.turn, self.state, self.starts = self.turn + 1, state, self.starts or restart
        self.timers = () if restart else self.timers

    @property
    def is_due(self) -> bool:
        """Whether it must have a turn that is about to run."""
        return self.starts or any(one.due_at is None for one in self.mail.values())

    @property
    def waits(self) -> bool:
        """Whether it has something to do at some time."""
        return bool(self.timers) or not all(one.is_parked for one in self.mail.values())

    def asks(self) -> Iterator[tuple[UUID, ReplyTo]]:
        """What other actors asked it, and it has not read."""
        for (id, _), mailed in self.mail.items():
            if mailed.reply_to is not None and mailed.reply_to.type:
                yield id, mailed.reply_to


def _set(timers: Sequence[Timer], now: int) -> Iterator[Timer]:
    for timer in timers:
        if timer.after_s is None:
            yield timer
        else:
            yield structs.replace(timer, at=now + round(timer.after_s * MICROS), after_s=None)
