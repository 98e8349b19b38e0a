"""A history by subject: each job with all that is known of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import structs

from longshore.testing.chaos import history as h

SUCCEEDED = "succeeded"
ENDS = frozenset({SUCCEEDED, "failed", "dependency_failed", "skipped", "cancelled"})
FREEZES = frozenset({"freeze", "freeze_alone", "stutter"})
NEVER = float("inf")


@dataclass
class Body:
    """One run of the code of a job. `last` is when it was last seen to run."""

    job: str
    attempt: str
    worker: str
    sort: str
    keys: tuple[str, ...]
    parent: str
    began: float
    last: float
    gap: float = 0.0
    """The longest time between two signs of life."""
    is_over: bool = False

    def sign(self, at: float) -> None:
        """It was seen to run."""
        self.gap = max(self.gap, at - self.last)
        self.last = max(self.last, at)


@dataclass
class Job:
    """All that is known of a job."""

    id: str
    called: h.Called | None = None
    accepted: float | None = None
    seen: list[h.Seen] = field(default_factory=list)
    told: list[h.Told] = field(default_factory=list)
    found: h.Found | None = None
    is_missing: bool = False
    bodies: list[Body] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        """Whether the store says so."""
        return self.found is not None and self.found.state == SUCCEEDED

    @property
    def name(self) -> str:
        """How reports call it."""
        sort = self.called.sort if self.called else self.bodies[0].sort if self.bodies else "?"
        return f"{self.id} ({sort})"


@dataclass
class Struck:
    """A fault, from when to when."""

    fault: h.Struck
    healed: float = NEVER


@dataclass
class Facts:
    """A history by subject."""

    jobs: dict[str, Job] = field(default_factory=dict)
    bodies: dict[tuple[str, str], Body] = field(default_factory=dict)
    faults: dict[int, Struck] = field(default_factory=dict)
    sent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """How many messages were accepted: by actor and sender."""
    applied: dict[str, h.Applied] = field(default_factory=dict)
    fires: dict[str, h.Fires] = field(default_factory=dict)
    versions: h.Versions | None = None
    hiccups: list[h.Hiccup] = field(default_factory=list)
    outages: list[h.StoreAway] = field(default_factory=list)
    lease_s: float = 0.0
    ended: list[h.Ended] = field(default_factory=list)
    refused: list[h.Refused] = field(default_factory=list)
    left: list[h.Left] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    children: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, events: Iterable[h.AnyEvent]) -> Facts:
        """The facts of a history."""
        made = cls()
        for event in events:
            made._learn(event)
        return made

    def job(self, id: str) -> Job:
        """What is known of a job."""
        return self.jobs.setdefault(id, Job(id))

    def _learn(self, event: h.AnyEvent) -> None:
        match event:
            case h.Began():
                self._begin(event)
            case h.Beat() | h.Over():
                self._sign(event)
            case h.Called():
                self.job(event.job).called = event
            case h.Accepted():
                self.job(event.job).accepted = event.at
            case h.Seen():
                self.job(event.job).seen.append(event)
            case h.Told():
                self.job(event.job).told.append(event)
            case h.Found():
                self.job(event.job).found = event
            case h.Missing():
                self.job(event.job).is_missing = True
            case h.Struck():
                self.faults[event.fault] = Struck(event)
            case h.Healed():
                if event.fault in self.faults:
                    self.faults[event.fault].healed = event.at
            case _:
                self._learn_more(event)

    def _learn_more(self, event: h.AnyEvent) -> None:
        match event:
            case h.Sent():
                self.sent[event.actor, event.sender] += 1
            case h.Applied():
                self.applied[event.actor] = event
            case h.Fires():
                self._fire(event)
            case h.Versions():
                self.versions = event
            case h.Ended():
                self.ended.append(event)
            case h.Hiccup():
                self.hiccups.append(event)
            case h.StoreAway():
                self.outages.append(event)
            case h.Lease():
                self.lease_s = event.seconds
            case h.Refused():
                self.refused.append(event)
            case h.Left():
                self.left.append(event)
            case h.Phase():
                self.phases[event.name] = event.at

    def _begin(self, event: h.Began) -> None:
        body = Body(
            event.job,
            event.attempt,
            event.worker,
            event.sort,
            event.keys,
            event.parent,
            event.at,
            event.at,
        )
        self.bodies[event.job, event.attempt] = body
        self.job(event.job).bodies.append(body)
        if event.parent:
            self.children[event.parent].add(event.job)

    def _sign(self, event: h.Beat | h.Over) -> None:
        body = self.bodies.get((event.job, event.attempt))
        if body is not None:
            body.sign(event.at)
            body.is_over = body.is_over or isinstance(event, h.Over)

    def _fire(self, event: h.Fires) -> None:
        """Pages of fires, read one after the other; a later reading knows better."""
        known = self.fires.get(event.schedule)
        found = {one[0]: one for one in (known.fires if known else ())}
        found |= {one[0]: one for one in event.fires}
        fires = tuple(found[at] for at in sorted(found))
        self.fires[event.schedule] = structs.replace(event, fires=fires)
