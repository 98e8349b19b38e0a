"""The dispatcher's side of the dialogue with one worker, without sockets, clock or store.

Theory. A `Session` is one session of one worker. It knows which attempts the store has *placed* on
the worker, and how many of its slots are free. Messages can get lost, so the two sides compare what
they know at every PING. JOBS messages are numbered. A PING names the last JOBS that the worker has
seen, the attempts that it *holds*, and the attempts whose reports are not acknowledged. From that a
`FullSession` sees, without any timeout, where an attempt is:

- placed, and sent in a later JOBS than the worker has seen: it is on its way.
- placed, sent in a JOBS that the worker has seen, but neither held nor reported: it got lost. The
  dispatcher sends it again with the same token; a worker ignores a repeat.
- held, but not placed: another worker owns the job now. The dispatcher tells the worker to stop it.
- listed as unacknowledged by two PINGs in a row, but its report never came: the report got lost.
  The dispatcher asks for it again. (One PING is not enough: it may have overtaken the report.)

A slot is free as soon as the report of its attempt comes, because the worker has freed it too. But
a worker gets no more jobs while `MAX_UNSEEN_BYTES` of arguments are on their way to it. The
dispatcher can end an attempt without its worker. Then the slot is not free before the worker says
that it stopped the attempt: until then the attempt *lingers*.

PING says which attempts run, and for how long. The others are held ahead: they wait in the worker
for a slot. A worker that does not say so runs all that it holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from math import inf
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from longshore.core.leases import is_lost, lease_for
from longshore.core.resources import taken
from longshore.model.attempt import Assignment, Attempt, AttemptKey
from longshore.model.worker import Ahead, Attended, Stats, WorkerInfo
from longshore.wire import messages as m
from longshore.wire.portions import MESSAGE_BYTES, portions

MAX_UNSEEN_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of arguments may be on their way to a worker."""

LATE_S: Final = 1.0
"""An attempt whose age shrinks by more than this has begun anew, later than it was said."""
MAX_STRAYS: Final = 1_000
"""How many reports of attempts that are not placed on the worker may wait for the store."""

ASSIGNMENT_FIELDS_BYTES: Final = 1024
"""The fields of an assignment take fewer bytes than this, without its arguments."""

SENT_AGAIN_S: Final = 0.5
"""Lost attempts are sent again at most this often, even if a worker floods us with PINGs."""

DRAINED = "the worker is to drain"


class Sent(Struct, gc=False):
    """An attempt that is placed on the worker, and the number of the JOBS message that sent it."""

    claimed: Attempt
    seq: int
    seen: bool = False
    """Whether the worker has it: it listed the attempt as held, or reported its end."""
    reported: bool = False
    undeliverable: bool = False
    given_at: float | None = None
    """When the store gave it to this session; None if the worker brought it along."""
    begun_at: float | None = None
    """When it began to run, as far as PINGs tell."""
    stop_at: float | None = None
    """When the worker was first told to stop it."""
    withheld: bool = False
    """Whether the worker was not told of it, because it must not run."""


def assignment(claimed: Attempt) -> Assignment:
    """An attempt as its worker needs it."""
    return Assignment(
        claimed.id,
        claimed.token,
        claimed.number,
        claimed.kind,
        claimed.args,
        claimed.options.timeout_s,
        claimed.attempt,
        claimed.options.raw,
        claimed.priority,
        claimed.begin_within_s,
        claimed.round,
        claimed.worker if claimed.options.turn else None,
        claimed.options.traceparent,
        claimed.failures,
        scheduled=claimed.options.scheduled,
        resources=claimed.options.resources,
    )


class Session(ABC):
    """One session of one worker, full or plain."""

    def __init__(
        self, peer: bytes, info: WorkerInfo, attended: Attended, now: float, draining: bool
    ) -> None:
        self.peer = peer
        self.info = info
        self.worker = info.id
        self.by = str(info.id)
        """The worker's name in histories."""
        self.name = info.name or self.by
        """The worker's name in logs."""
        self.number = attended.session
        self.heard_at = now
        self.given_at: float | None = None
        """When the store last gave it attempts."""
        self.draining = draining
        self.given = 0
        self.placed: dict[int, Sent] = {}
        """The attempts that the store has placed here, by token."""
        self.unsent_acks: list[m.Ack] = []
        self._unseen_bytes = 0
        self._strays: set[int] = set()
        """Tokens of reports that came here, of attempts that are not placed here."""
        self.free = dict(info.pools)
        """The free slots of each pool; below zero, so many attempts are held ahead."""
        self.free_resources: Mapping[str, float] = dict(info.resources)
        """What is left of what its jobs share."""
        self._lingering: dict[int, str] = {}
        """The pools of attempts that take up a slot, though they are not placed here any more."""
        self._lingering_shapes: dict[int, str] = {}
        """What those of them that take resources take."""
        self.ahead = Ahead()
        for claimed in attended.placed:
            self._place(claimed, 0)

    @property
    def open_slots(self) -> dict[str, int]:
        """How many more attempts of each pool this worker can take."""
        return {} if self.draining or self.is_choked else self.free

    @property
    def open_ahead(self) -> dict[str, int]:
        """How many more attempts of each pool this worker can hold ahead of its slots."""
        if self.draining or self.is_choked:
            return {}
        pools = self.ahead.pools.items()
        return {pool: most + min(0, self.free.get(pool, 0)) for pool, most in pools}

    @property
    def room(self) -> int:
        """How many attempts its free slots take now."""
        return sum(free for free in self.open_slots.values() if free > 0)

    def held_ahead(self) -> dict[int, int]:
        """The attempts that wait in the worker for a slot, and behind how many that run.

        Some may have begun since the last PING. Which, follows from the order of the worker's line.
        """
        lines: dict[str, list[Sent]] = {}
        for sent in self.placed.values():
            info = self.info.kinds.get(sent.claimed.kind)
            if info is not None and not sent.reported:
                lines.setdefault(info.pool, []).append(sent)
        lingering = Counter(self._lingering.values())
        held: dict[int, int] = {}
        for pool, line in lines.items():
            slots = self.info.pools[pool] - lingering[pool]
            for sent in sorted(line, key=_turn)[max(0, slots) :]:
                held[sent.claimed.token] = self.info.pools[pool]
        return held

    @property
    def is_choked(self) -> bool:
        """Whether so much is on its way to the worker that it gets no more for now."""
        return self._unseen_bytes >= MAX_UNSEEN_BYTES

    def _take(self, claimed: Attempt, slots: int) -> None:
        """Takes slots of a kind's pool, or gives them back, and the resources of an attempt."""
        info = self.info.kinds.get(claimed.kind)
        if info is not None:
            self.free[info.pool] -= slots
        if claimed.options.resources:
            self.free_resources = taken(self.free_resources, claimed.options.resources, slots)

    def _place(self, claimed: Attempt, seq: int) -> Sent:
        sent = self.placed.get(claimed.token)
        if sent is None:
            self._take(claimed, 1)
            sent = self.placed[claimed.token] = Sent(claimed, seq, given_at=self.given_at)
            self._unseen_bytes += len(claimed.args)
        return sent

    def _mark_seen(self, sent: Sent) -> None:
        if not sent.seen:
            sent.seen = True
            self._unseen_bytes -= len(sent.claimed.args)

    def sent(self, job: UUID, token: int) -> Sent | None:
        """The placed attempt of this job and token, if there is one."""
        sent = self.placed.get(token)
        # Comparing the numbers is several times as fast as comparing the UUIDs.
        return sent if sent is not None and sent.claimed.id.int == job.int else None

    def holds(self, attempt: AttemptKey) -> bool:
        """Whether an attempt is placed here. Only then may this worker log for it."""
        return self.sent(*attempt) is not None

    def abort(self, attempts: Sequence[AttemptKey], reason: str) -> list[m.DispatcherMessage]:
        """The messages that tell the worker to stop attempts; none if its dialogue has none."""
        return []

    def stopping_s(self, attempt: AttemptKey, now: float) -> float:
        """How long ago the worker was first told to stop an attempt; the first call starts it."""
        sent = self.sent(*attempt)
        if sent is None:
            return 0.0
        if sent.stop_at is None:
            sent.stop_at = now
        return now - sent.stop_at

    def acknowledge(self, ack: m.Ack) -> list[m.DispatcherMessage]:
        """The messages that tell the worker what it may forget; none if its dialogue has none."""
        return []

    def heed(self, draining: bool) -> list[m.DispatcherMessage]:
        """The store says whether the worker drains; answers the messages that tell the worker."""
        self.draining = draining
        return []

    @abstractmethod
    def is_lost(self, now: float, lease_s: float) -> bool:
        """Whether the worker was silent for so long that others may get its jobs."""

    @abstractmethod
    def is_overdue(self, claimed: Attempt, now: float, margin_s: float) -> bool:
        """Whether an attempt that the store finds overdue really ran too long on this worker."""

    def has_report(self, attempt: AttemptKey) -> bool:
        """Whether the report of an attempt came here, and is on its way to the store."""
        sent = self.sent(*attempt)
        return sent.reported if sent is not None else attempt[1] in self._strays

    def admits_stray(self, token: int) -> bool:
        """Whether to pass on the report of an attempt that is not placed here.

        The store will refuse it. Past the bound reports are dropped, and asked for again later.
        """
        self._stopped(token)
        if token in self._strays or len(self._strays) >= MAX_STRAYS:
            return False
        self._strays.add(token)
        return True

    def ended(self, sent: Sent) -> None:
        """The worker reported the end of an attempt: its slot is free."""
        if not sent.reported:
            sent.reported = True
            self._mark_seen(sent)
            self._take(sent.claimed, -1)

    def settled(self, attempt: AttemptKey) -> Sent | None:
        """The store has recorded or refused the end of an attempt; answers it if it was placed."""
        sent = self.sent(*attempt)
        if sent is None:
            self._strays.discard(attempt[1])
            return None
        if not sent.reported:
            if self._may_linger(sent):
                pool = self.info.kinds[sent.claimed.kind].pool
                self._linger(sent.claimed.token, pool, sent.claimed.options.resources)
            self.ended(sent)
        del self.placed[attempt[1]]
        return sent

    def _may_linger(self, sent: Sent) -> bool:
        """Whether the worker may still run an attempt that was ended without it."""
        return False

    def _linger(self, token: int, pool: str, shape: str = "") -> None:
        self._lingering[token] = pool
        self.free[pool] -= 1
        if shape:
            self._lingering_shapes[token] = shape
            self.free_resources = taken(self.free_resources, shape)

    def _stopped(self, token: int) -> None:
        """An attempt lingers no longer."""
        pool = self._lingering.pop(token, None)
        if pool is not None:
            self.free[pool] += 1
        shape = self._lingering_shapes.pop(token, "")
        if shape:
            self.free_resources = taken(self.free_resources, shape, -1)

    def undeliverable(self, claimed: Sequence[Attempt]) -> None:
        """The link could not send the message that assigns these attempts."""
        for one in claimed:
            # An attempt that was read back may have ended here before.
            if one.token in self.placed:
                self.placed[one.token].undeliverable = True

    def undelivered(self) -> list[Attempt]:
        """The attempts that never reached the worker."""
        return [sent.claimed for sent in self.placed.values() if sent.undeliverable]


class FullSession(Session):
    """A session of a worker that speaks the full protocol, with a lease and PINGs."""

    def __init__(
        self, peer: bytes, info: WorkerInfo, attended: Attended, now: float, draining: bool
    ) -> None:
        super().__init__(peer, info, attended, now, draining)
        self.stats = Stats()
        self._seq = 0
        self._seen = 0
        self._sent_again_at = float("-inf")
        self._unreported: set[int] = set()
        """Tokens that the last PING listed as unacknowledged, and whose reports never came."""
        # Tokens grow. So an attempt with an older token was here before, and may have ended.
        self._newest = max((one.token for one in attended.placed), default=0)
        self.is_proxied = info.service is not None
        """Whether a gateway speaks for the worker. Its ends may come through another one."""
        self.in_doubt: list[Attempt] = []
        """What a proxied worker should have, but does not list. It may have ended elsewhere."""
        self.issue: Callable[[Attempt], str] = lambda attempt: ""
        """Makes the ticket of an attempt that has to do with files."""
        self._with_files = frozenset(kind for kind, known in info.kinds.items() if known.files)

    def is_lost(self, now: float, lease_s: float) -> bool:
        """Whether the worker's lease has ended."""
        return is_lost(self.heard_at, now, lease_for(self.info, lease_s))

    def heed(self, draining: bool) -> list[m.DispatcherMessage]:
        """An EXIT, if the worker is to drain and is not draining yet. It cannot be undone."""
        if not draining or self.draining:
            return []
        self.draining = True
        return [m.Exit(self.worker, DRAINED)]

    def welcome(self, ready: m.Ready, ping_s: float, lease_s: float) -> list[m.DispatcherMessage]:
        """The first messages: WELCOME, JOBS that the worker lacks, ABORT of those not its own."""
        self._note_held(ready.held)
        held = _tokens(ready.held, ready.unacknowledged)
        lacking = [sent.claimed for token, sent in self.placed.items() if token not in held]
        welcome = m.Welcome(self.worker, self.number, ping_s, lease_for(self.info, lease_s))
        return [welcome, *self._jobs(lacking), *self._aborts(ready.held)]

    def assign(self, claimed: Sequence[Attempt]) -> list[m.DispatcherMessage]:
        """Places attempts on this worker; answers the messages that tell it so."""
        self.given += len(claimed)
        fresh = [one for one in claimed if one.token > self._newest]
        self._newest = max((one.token for one in fresh), default=self._newest)
        return self._jobs(fresh)

    def _jobs(self, claimed: Sequence[Attempt]) -> list[m.DispatcherMessage]:
        messages: list[m.DispatcherMessage] = []
        for part in portions(claimed, _assignment_bytes, MESSAGE_BYTES):
            self._seq += 1
            for one in part:
                sent = self._place(one, self._seq)
                sent.seq, sent.undeliverable = self._seq, False
                sent.withheld = one.paused or bool(one.problem)
            made = self._with_ticket if self._with_files else assignment
            sound = tuple(made(one) for one in part if not (one.paused or one.problem))
            messages.append(m.Jobs(self.worker, self._seq, sound))
        return messages

    def _with_ticket(self, one: Attempt) -> Assignment:
        made = assignment(one)
        if one.kind not in self._with_files:
            return made
        return structs.replace(made, failures=one.failures, ticket=self.issue(one))

    def broken(self) -> list[Attempt]:
        """The attempts that are placed here and cannot run; the worker never hears of them."""
        sent = (one for one in self.placed.values() if not one.reported)
        return [one.claimed for one in sent if one.claimed.problem or one.withheld]

    def abort(self, attempts: Sequence[AttemptKey], reason: str) -> list[m.DispatcherMessage]:
        """An ABORT that names the attempts."""
        return [m.Abort(self.worker, tuple(attempts), reason)]

    def _aborts(self, held: Iterable[AttemptKey]) -> list[m.DispatcherMessage]:
        foreign = tuple(attempt for attempt in held if self.sent(*attempt) is None)
        return self.abort(foreign, "the job is not this worker's any more") if foreign else []

    def acknowledge(self, ack: m.Ack) -> list[m.DispatcherMessage]:
        """The ACK itself."""
        return [ack]

    def _note_held(self, held: Iterable[AttemptKey]) -> None:
        for attempt in held:
            sent = self.sent(*attempt)
            if sent is not None:
                sent.undeliverable = False
                self._mark_seen(sent)

    def _note_begun(self, now: float, ping: m.Ping) -> None:
        """Notes which attempts run, and which of them are not this worker's any more.

        A web service begins what it gets. If it never lists an attempt, its time counts all the
        same: otherwise it would be sent the attempt for ever.
        """
        if self.is_proxied:
            for sent in self.placed.values():
                if sent.begun_at is None:
                    sent.begun_at = now if sent.given_at is None else sent.given_at
        if ping.begun is None:
            for attempt in ping.held:
                self._begun(attempt[1], now)
            self._linger_only({token: self._lingering.get(token, "") for _, token in ping.held})
            return
        running: dict[int, str] = {}
        for pool, runs in ping.begun.items():
            for run in runs:
                running[run.token] = pool
                self._begun(run.token, now - max(0.0, run.age_s), LATE_S)
        self._linger_only(running)

    def _begun(self, token: int, at: float, late_s: float = inf) -> None:
        sent = self.placed.get(token)
        if sent is None:
            return
        # A program begins when its files are there: its worker then tells a lower age than before.
        if sent.begun_at is None or at > sent.begun_at + late_s:
            sent.begun_at = at

    def _linger_only(self, running: Mapping[int, str]) -> None:
        """Of the attempts that run, those that are not placed here linger, and no others."""
        for token in [token for token in self._lingering if token not in running]:
            self._stopped(token)
        for token, pool in running.items():
            if token not in self.placed and token not in self._lingering and pool in self.free:
                self._linger(token, pool)

    def _may_linger(self, sent: Sent) -> bool:
        return not sent.undeliverable and sent.claimed.kind in self.info.kinds

    def is_overdue(self, claimed: Attempt, now: float, margin_s: float) -> bool:
        """Whether the worker has run the attempt for its timeout and a margin."""
        sent = self.placed.get(claimed.token)
        if sent is None or sent.begun_at is None or claimed.options.timeout_s is None:
            return False
        return now - sent.begun_at >= claimed.options.timeout_s + margin_s

    def unsent(self) -> None:
        """The link could not send something: the next PING sends again what the worker lacks."""
        for sent in self.placed.values():
            sent.undeliverable = sent.undeliverable or sent.seq > self._seen

    def pinged(
        self, now: float, ping: m.Ping, ping_s: float, lease_s: float | None
    ) -> list[m.DispatcherMessage]:
        """The answers to a PING: PONG, and messages that settle what the two sides disagree on."""
        self.heard_at = now
        self.stats = ping.stats
        self._seen = ping.seen
        granted_s = None if lease_s is None else lease_for(self.info, lease_s)
        messages: list[m.DispatcherMessage] = [m.Pong(self.worker, ping.no, ping_s, granted_s)]
        if self.draining and not ping.draining:
            messages.append(m.Exit(self.worker, DRAINED))
        self.draining = self.draining or ping.draining
        self.ahead = ping.ahead
        self._note_held(ping.held)
        self._note_begun(now, ping)
        lost = self._lost(now, ping)
        if self.is_proxied:
            self.in_doubt = lost
        else:
            messages += self._jobs(lost)
        messages += self._aborts(ping.held)
        messages += self._resends(ping.unacknowledged)
        return messages

    def _lost(self, now: float, ping: m.Ping) -> list[Attempt]:
        """Attempts that the worker should have by now, but does not list."""
        if now - self._sent_again_at < SENT_AGAIN_S:
            return []
        held = _tokens(ping.held, ping.unacknowledged)
        lost = [
            sent.claimed
            for token, sent in self.placed.items()
            if (sent.seq <= ping.seen or sent.undeliverable)
            and not (sent.reported or token in held)
        ]
        if lost:
            self._sent_again_at = now
        return lost

    def read_back(self, placed: Set[int], at: float) -> list[m.DispatcherMessage]:
        """The store said at this time what is placed here. What ended elsewhere frees its slot.

        Answers the messages that send again what is in doubt and still placed.
        """
        for token, sent in list(self.placed.items()):
            known = sent.given_at is None or sent.given_at < at
            if known and token not in placed and not sent.reported:
                self.ended(sent)
                del self.placed[token]
        lost, self.in_doubt = self.in_doubt, []
        return self._jobs([one for one in lost if one.token in self.placed])

    def _resends(self, ended: Iterable[AttemptKey]) -> list[m.DispatcherMessage]:
        """A RESEND for attempts that the last two PINGs list, and whose reports never came."""
        missing = [attempt for attempt in ended if not self.has_report(attempt)]
        lost = tuple(attempt for attempt in missing if attempt[1] in self._unreported)
        self._unreported = {token for _, token in missing}
        return [m.Resend(self.worker, lost)] if lost else []


def _turn(sent: Sent) -> tuple[bool, int, int]:
    """The order in which attempts begin: those that run, then as in the worker's line."""
    return sent.begun_at is None, -sent.claimed.priority, sent.claimed.number


def _tokens(*attempts: Iterable[AttemptKey]) -> set[int]:
    return {token for some in attempts for _, token in some}


def _assignment_bytes(claimed: Attempt) -> int:
    return ASSIGNMENT_FIELDS_BYTES + len(claimed.args)
