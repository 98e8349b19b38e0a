"""The nemesis: lets every fault of a scenario happen at its time, and ends them all in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from longshore.testing.simulation import faults as f
from longshore.testing.simulation.cluster import Node, World
from longshore.testing.simulation.http_link import HttpWeather
from longshore.testing.simulation.loop import Process
from longshore.testing.simulation.network import Slowness, Way

Deed = Callable[[], object]


class Nemesis:
    """Brings the faults, and remembers what must be undone."""

    def __init__(self, world: World, nodes: Mapping[str, Node]) -> None:
        self._world = world
        self._loop = world.loop
        self._nodes = nodes
        self._store_delay_s = world.database.weather.delay_s
        self._troubles: dict[int, Deed] = {}
        self._serial = 0
        self._troubled_at = float("-inf")
        self._is_over = False
        self.struck = 0
        """How many faults it has made."""

    def unleash(self, faults: Iterable[f.Fault]) -> None:
        """Every fault will happen at its time."""
        for fault in faults:
            self._loop.outside_at(fault.at, self._happen, fault)

    def end(self) -> None:
        """All is well again, and stays so."""
        self._say("the storm is over")
        self._is_over = self._world.is_calm = True
        for undo in list(self._troubles.values()):
            undo()
        for node in self._nodes.values():
            node.start()

    def calm_for_s(self) -> float:
        """For how long nothing was amiss, except that dispatchers were killed."""
        return 0.0 if self._troubles else self._loop.time() - self._troubled_at

    def _happen(self, fault: f.Fault) -> None:
        if self._is_over:
            return
        match fault:
            case f.Kill():
                self._kill(fault)
            case f.Freeze():
                self._freeze(fault)
            case f.Leave():
                self._leave(fault)
            case f.Cut():
                self._cut(fault)
            case f.Reset(_, ways):
                self._say(f"the connections {_words(ways)} break")
                self._trouble(0.0, lambda: self._world.network.reset(ways), _nothing)
            case f.Slow() | f.Full() | f.Leak():
                self._worsen(fault)
            case f.Outage() | f.Flaky() | f.Sluggish() | f.Late():
                self._disturb(fault)
            case f.Unreliable():
                self._spoil(fault)
            case _:
                assert_never(fault)

    def _say(self, text: str) -> None:
        self._world.note("fate", text)

    def _trouble(self, seconds: float, do: Deed, undo: Deed) -> None:
        """Does something now and undoes it later; until then there is trouble."""
        self._serial += 1
        self.struck += 1
        serial = self._serial

        def end() -> None:
            if self._troubles.pop(serial, None) is not None:
                self._troubled_at = self._loop.time()
                undo()

        self._troubles[serial] = end
        do()
        self._loop.outside_at(self._loop.time() + seconds, end)

    # processes

    def _kill(self, fault: f.Kill) -> None:
        node = self._nodes[fault.node]
        process = node.process
        if process is None:
            return

        def die() -> None:
            if node.process is process and not self._is_over:
                if fault.is_trouble:
                    self._trouble(0.0, _nothing, _nothing)
                else:
                    self.struck += 1
                node.kill("is killed")
                self._loop.outside_at(self._loop.time() + fault.down_s, node.start)

        process.after(fault.fuse if process.runs else 0, die)

    def _leave(self, fault: f.Leave) -> None:
        node = self._nodes[fault.node]
        if fault.is_trouble:
            self._trouble(fault.down_s, node.stop, node.start)
        else:
            self.struck += 1
            node.stop()
            self._loop.outside_at(self._loop.time() + fault.down_s, node.start)

    def _freeze(self, fault: f.Freeze) -> None:
        process = self._nodes[fault.node].process
        if process is None or not process.runs:
            return

        def freeze() -> None:
            if process.runs and not self._is_over:
                self._world.note(process.name, f"is frozen for {fault.for_s:.3f} s")
                self._trouble(fault.for_s, process.freeze, lambda: self._thaw(process))

        process.after(fault.fuse, freeze)

    def _thaw(self, process: Process) -> None:
        if not process.dead:
            self._world.note(process.name, "thaws")
            process.thaw()

    # ways

    def _cut(self, fault: f.Cut) -> None:
        network, ways = self._world.network, fault.ways
        broken = ", and its connections break" if fault.breaks else ""
        self._say(f"{_words(ways)} is cut{broken}")

        def heal() -> None:
            self._say(f"{_words(ways)} heals")
            network.heal(ways)

        self._trouble(fault.for_s, lambda: network.cut(ways, breaks=fault.breaks), heal)

    def _worsen(self, fault: f.Slow | f.Full | f.Leak) -> None:
        network, way = self._world.network, fault.way
        match fault:
            case f.Slow():
                self._say(f"{_words([way])} becomes slower, up to {fault.at_most_s:g} s")
                network.slow[way] = Slowness(self._loop.time(), fault.ramp_s, fault.at_most_s)
            case f.Full():
                self._say(f"{_words([way])} is full for {fault.share:.0%} of its messages")
                network.full[way] = fault.share
            case f.Leak():
                self._say(f"{_words([way])} loses {fault.share:.0%} of DONE and ACK")
                network.leaks[way] = fault.share

        def mend() -> None:
            self._say(f"{_words([way])} is as before")
            match fault:
                case f.Slow():
                    network.slow.pop(way, None)
                case f.Full():
                    network.full.pop(way, None)
                case f.Leak():
                    network.leaks.pop(way, None)

        self._trouble(fault.for_s, _nothing, mend)

    def _spoil(self, fault: f.Unreliable) -> None:
        http = self._world.http
        self._say(
            f"HTTP loses {fault.lost:.0%} of requests and {fault.unanswered:.0%} of answers, "
            f"doubles {fault.doubled:.0%} and takes up to {fault.late_s:g} s longer"
        )
        now = HttpWeather(fault.lost, fault.unanswered, fault.doubled, fault.late_s)
        http.weather = now

        def mend() -> None:
            self._say("HTTP is as before")
            if http.weather is now:
                http.weather = HttpWeather()

        self._trouble(fault.for_s, _nothing, mend)

    # the database

    def _disturb(self, fault: f.Outage | f.Flaky | f.Sluggish | f.Late) -> None:
        weather = self._world.database.weather
        match fault:
            case f.Outage(_, nodes, patience_s):
                self._say(f"the store is out of reach of {', '.join(nodes)}")
                weather.away.update(dict.fromkeys(nodes, patience_s))
            case f.Flaky(_, share):
                self._say(f"{share:.0%} of the calls to the store fail")
                weather.flaky = share
            case f.Sluggish(_, delay_s):
                self._say(f"the store takes up to {delay_s[1]:g} s each way")
                weather.delay_s = delay_s
            case f.Late(_, node, late_s):
                self._say(f"the store answers {node} {late_s:g} s late")
                weather.late[node] = late_s

        def mend() -> None:
            self._say("the store is as before")
            if isinstance(fault, f.Outage):
                for node in fault.nodes:
                    weather.away.pop(node, None)
            elif isinstance(fault, f.Flaky):
                weather.flaky = 0.0
            elif isinstance(fault, f.Late):
                weather.late.pop(fault.node, None)
            else:
                weather.delay_s = self._store_delay_s

        self._trouble(fault.for_s, _nothing, mend)


def _nothing() -> None:
    pass


def _words(ways: Iterable[Way]) -> str:
    return ", ".join(f"{src}→{dst}" for src, dst in sorted(ways))
