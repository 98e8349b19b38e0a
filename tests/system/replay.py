"""What the states of ledgers must be: a plain replay of what was sent, without any Longshore.

In which order an actor got the messages of several senders is up to chance, so its own entries say
it. Everything else is checked: each sender's messages came in the order in which they were sent,
each exactly once; the rest of the state follows from the entries; and whatever an actor sent has
arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.system.apps import ledgers

DEEDS = frozenset({"note", "relay", "question", "alarm", "hire", "charge", "invite"})
"""What messages ask for; entries of another kind are of the actor itself."""


class Entry(NamedTuple):
    """One line that an actor wrote."""

    deed: str
    sender: str
    n: int
    more: str

    @classmethod
    def read(cls, line: str) -> Entry:
        deed, sender, n, more = line.split(" ")
        return cls(deed, sender, int(n), more)


@dataclass
class Replay:
    """The state that a plain object has after these entries, and what it sends."""

    total: int = 0
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    hired: int = 0
    charged: int = 0
    billed: list[Entry] = field(default_factory=list)
    invited: int = 0
    invitations: list[Entry] = field(default_factory=list)
    accepted: list[Entry] = field(default_factory=list)
    alarms: int = 0
    rung: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)
    heard: list[tuple[str, int, int]] = field(default_factory=list)
    out: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))

    def apply(self, entry: Entry, name: str) -> None:
        """One more entry of the actor with this name."""
        match entry.deed:
            case "note":
                self.total += int(entry.more)
            case "relay":
                self._send(name, entry.more, 1)
            case "question":
                self.asked.append((entry.more, self._send(name, entry.more, 2)))
            case "heard":
                self.heard.append((entry.sender, entry.n, int(entry.more)))
            case "alarm":
                self.alarms += 1
            case "ring":
                assert entry.n == self.alarms, f"{name} rang for alarms that it had not had"
                assert entry.n > self.rung, f"{name} rang twice for one alarm"
                self.rung = entry.n
            case "hire":
                self.hired += 1
                job = f"job-of-{name}-{self.hired}"
                self.out[name].append(Entry("note", job, 1, str(self.hired)))
            case "charge":
                self.charged += 1
            case "billed":
                assert entry.n <= self.charged, f"{name} was told of a job that it had not sent"
                self.billed.append(entry)
            case "invite":
                self.invited += 1
                value = f"{entry.sender}.{entry.n}"
                self.invitations.append(Entry("accepted", "-", self.invited, value))
            case "accepted":
                self.accepted.append(entry)
            case _:
                assert entry.deed == "start", entry

    def _send(self, name: str, to: str, amount: int) -> int:
        self.sent[to] += 1
        self.out[to].append(Entry("note", name, self.sent[to], str(amount)))
        return self.sent[to]


def check(states: Mapping[str, Any], sent: Mapping[str, list[Entry]]) -> None:
    """Every state equals its replay. `sent` is what clients sent to each actor, in their order."""
    entries = {name: [Entry.read(one) for one in s["entries"]] for name, s in states.items()}
    wanted = {name: list(some) for name, some in sent.items()}
    replays: dict[str, Replay] = {}
    for name, lines in entries.items():
        replays[name] = replay = Replay()
        for line in lines:
            replay.apply(line, name)
        for to, some in replay.out.items():
            wanted.setdefault(to, []).extend(some)
    for name, state in states.items():
        _check_received(name, entries[name], wanted.get(name, []))
        _check_state(name, state, replays[name])
        _check_replies(name, replays[name], entries)
        _check_outcomes(name, replays[name])


def _check_received(name: str, got: list[Entry], wanted: list[Entry]) -> None:
    got_by, wanted_by = defaultdict(list), defaultdict(list)
    for one in got:
        if one.deed in DEEDS:
            got_by[one.sender].append(one)
    for one in wanted:
        wanted_by[one.sender].append(one)
    for sender in got_by.keys() | wanted_by.keys():
        assert got_by[sender] == wanted_by[sender], f"{name} got other things from {sender}"
    starts = [place for place, one in enumerate(got) if one.deed == "start"]
    assert starts == ([0] if name.startswith("Ledger:") else []), f"{name} started once, first"


def _check_state(name: str, state: Mapping[str, Any], replay: Replay) -> None:
    wanted = {key: getattr(replay, key) for key in state.keys() - {"entries", "ticks"}}
    assert {key: state[key] for key in wanted} == wanted, f"{name} has another state"
    assert replay.rung == replay.alarms, f"{name} did not ring for its last alarm"


def _check_replies(name: str, replay: Replay, entries: Mapping[str, list[Entry]]) -> None:
    heard = [(to, n) for to, n, _ in replay.heard]
    assert sorted(heard) == sorted(replay.asked), f"{name} heard each answer once"
    for to, n, place in replay.heard:
        found = entries[to][place - 1]
        assert (found.sender, found.n) == (name, n), f"{name} heard of another entry of {to}"


def _check_outcomes(name: str, replay: Replay) -> None:
    """It heard once how each of its jobs ended, and once of each callback, of its first value."""
    wanted = [_bill(n) for n in range(1, replay.charged + 1)]
    assert sorted(replay.billed) == sorted(wanted), f"{name} heard once of each job"
    assert sorted(replay.accepted) == sorted(replay.invitations), f"{name} heard of each callback"


def _bill(n: int) -> Entry:
    """What an actor hears of the job with this number."""
    if n % ledgers.DECLINED == 0:
        return Entry("billed", "failed", n, "-")
    return Entry("billed", "succeeded", n, f"paid-{n}")
