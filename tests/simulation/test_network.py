"""The network of simulations: order within a connection, and how messages get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from longshore.testing.simulation.loop import Process, SimulatedLoop
from longshore.testing.simulation.network import Dialer, Listener, Network, Slowness
from longshore.testing.simulation.trace import Trace

Heard = list[tuple[float, bytes]]
BOTH_WAYS = frozenset({("w", "d"), ("d", "w")})


class Pair:
    """A worker that is connected to a dispatcher."""

    def __init__(self, heartbeat_s: float | None = None) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random(1), Trace(), (0.001, 0.02), heartbeat_s)
        self.dispatcher = Process(self.loop, "d", "d")
        self.worker = Process(self.loop, "w", "w")
        self.at_dispatcher: Heard = []
        self.at_worker: Heard = []
        self.peers: dict[bytes, None] = {}
        self.listener: Listener = self.network.listen_as(self.dispatcher)("a", self._to_dispatcher)
        self.dialer: Dialer = self.network.connect_as(self.worker)("a", self._to_worker)

    def _to_dispatcher(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for peer, frames in arrived:
            self.peers[peer] = None
            self.at_dispatcher.append((self.loop.time(), frames[1]))

    def _to_worker(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        self.at_worker += [(self.loop.time(), frames[1]) for _, frames in arrived]

    def say(self, *texts: bytes) -> None:
        for text in texts:
            self.dialer.send(b"", [b"", text])

    def tell(self, text: bytes) -> bool:
        return self.listener.send(list(self.peers)[-1], [b"", text])

    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @property
    def heard(self) -> list[bytes]:
        return [text for _, text in self.at_dispatcher]


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.loop.close()


def test_messages_of_one_connection_arrive_in_order(pair: Pair) -> None:
    texts = [b"%d" % number for number in range(200)]
    pair.say(*texts)
    pair.wait(1.0)
    assert pair.heard == texts


def test_what_is_said_before_anybody_listens_is_kept() -> None:
    pair = Pair()
    pair.listener.close()
    pair.say(b"early")
    pair.wait(5.0)
    pair.listener = pair.network.listen_as(pair.dispatcher)("a", pair._to_dispatcher)
    pair.wait(2.0)
    assert pair.heard == [b"early"]
    pair.loop.close()


def test_a_cut_holds_what_is_under_way_and_gives_it_in_order_when_it_heals(pair: Pair) -> None:
    pair.say(b"before")
    pair.wait(1.0)
    pair.network.cut(BOTH_WAYS, breaks=False)
    pair.say(b"1", b"2")
    pair.wait(10.0)
    assert pair.heard == [b"before"]
    pair.network.heal(BOTH_WAYS)
    pair.say(b"3")
    pair.wait(1.0)
    assert pair.heard == [b"before", b"1", b"2", b"3"]
    assert len(pair.peers) == 1


def test_a_cut_one_way_lets_the_other_through(pair: Pair) -> None:
    pair.say(b"hello")
    pair.wait(1.0)
    pair.network.cut(frozenset({("w", "d")}), breaks=False)
    pair.say(b"unheard")
    assert pair.tell(b"welcome")
    pair.wait(1.0)
    assert pair.heard == [b"hello"]
    assert [text for _, text in pair.at_worker] == [b"welcome"]


def test_a_broken_connection_loses_what_is_under_way_and_its_name(pair: Pair) -> None:
    pair.say(b"first")
    pair.wait(1.0)
    pair.say(b"lost")
    pair.network.reset(BOTH_WAYS)
    pair.say(b"kept")
    pair.wait(2.0)
    assert pair.heard == [b"first", b"kept"]
    assert len(pair.peers) == 2
    assert not pair.listener.send(next(iter(pair.peers)), [b"", b"nobody"])


def test_a_frozen_process_reads_everything_when_it_thaws(pair: Pair) -> None:
    pair.say(b"a")
    pair.wait(1.0)
    pair.dispatcher.freeze()
    pair.say(b"b", b"c")
    pair.wait(5.0)
    pair.dispatcher.thaw()
    pair.wait(1.0)
    assert pair.at_dispatcher[1:] == [(6.0, b"b"), (6.0, b"c")]


def test_a_dead_process_hears_nothing_and_its_address_is_free(pair: Pair) -> None:
    pair.say(b"a")
    pair.wait(1.0)
    pair.dispatcher.kill()
    pair.network.died(pair.dispatcher)
    pair.say(b"b")
    again = Process(pair.loop, "d.2", "d")
    pair.network.listen_as(again)("a", pair._to_dispatcher)
    pair.wait(5.0)
    pair.say(b"c")
    pair.wait(1.0)
    assert pair.heard == [b"a", b"c"]
    assert len(pair.peers) == 2


def test_a_way_that_becomes_slower_still_keeps_the_order(pair: Pair) -> None:
    pair.say(b"0")
    pair.wait(1.0)
    pair.network.slow["w", "d"] = Slowness(1.0, 10.0, 5.0)
    for number in range(1, 11):
        pair.say(b"%d" % number)
        pair.wait(1.0)
    pair.network.slow.clear()
    pair.say(b"11")
    pair.wait(10.0)
    assert pair.heard == [b"%d" % number for number in range(12)]
    assert pair.at_dispatcher[10][0] == pytest.approx(14.5, abs=0.1)


def test_heartbeats_break_a_connection_whose_other_end_is_out_of_reach() -> None:
    pair = Pair(heartbeat_s=3.0)
    pair.say(b"a")
    pair.wait(1.0)
    pair.network.cut(BOTH_WAYS, breaks=False)
    pair.wait(7.0)
    assert not pair.tell(b"nobody")
    pair.loop.close()
