"""A deploy of a newer class of actors, on real workers, while messages come."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from longshore.client.actor import ActorRef
from longshore.model.actor import ActorStatus
from longshore.testing.processes import Process, await_true, settings
from tests.system.apps import ships_v1, ships_v2
from tests.system.conftest import QUICK_WORKER, Fleet

KEYS = tuple("abcdefgh")


def worker(fleet: Fleet, dispatcher: Process, version: int) -> Process:
    """A worker of this version of the class."""
    words = ["--app", f"ships_v{version}:app", "--connect", dispatcher.facts["backend"]]
    return fleet.start("worker", *words, *settings(**QUICK_WORKER))


class Sender:
    """Sends 1, 2, 3 … to every ship, one after the other."""

    def __init__(self) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._failed: Exception | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """It sends until this ends."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.01):
                for key in KEYS:
                    ref(key).send("note", n=self.sent + 1)
                self.sent += 1
        except Exception as error:
            self._failed = error

    def goes_on(self) -> None:
        """Waits until every ship was sent more."""
        seen = self.sent
        await_true(lambda: self.sent > seen + 1, "more was sent")


def ref(key: str) -> ActorRef[Any]:
    """A ship, as programs with the newer class see it: these can read either state."""
    return ships_v2.ships.ref(key)


def versions() -> dict[str, int]:
    """Of which version the state of each ship is."""
    return {key: ref(key).actor().version for key in KEYS}


def has_read(key: str, up_to: int) -> bool:
    return len(ref(key).state().log) >= up_to


@pytest.fixture
def dispatcher(fleet: Fleet) -> Iterator[Process]:
    """A dispatcher that both programs ask."""
    process = fleet.dispatcher()
    for app in (ships_v1.app, ships_v2.app):
        app._addresses = process.facts["frontend"]
    yield process
    for app in (ships_v1.app, ships_v2.app):
        app.close()


def test_two_versions_side_by_side_lose_nothing_and_never_go_back(
    fleet: Fleet, dispatcher: Process
) -> None:
    """The older workers go on with older states; a newer state waits for a newer worker."""
    first = worker(fleet, dispatcher, 1)
    for key in KEYS:
        ships_v1.ships.start(key)
    sender = Sender()
    with sender.at_work():
        await_true(lambda: all(has_read(key, 2) for key in KEYS), "the old class reads")
        newer = worker(fleet, dispatcher, 2)
        old = worker(fleet, dispatcher, 1)
        # Its ships go to the others: those that come to the newer worker are newer from then on.
        assert first.terminate() == 0, first.said()
        await_true(lambda: 2 in versions().values(), "some are newer")
        sender.goes_on()
        assert newer.terminate() == 0, newer.said()
        stranded = [key for key, version in versions().items() if version == 2]
        sender.goes_on()
    for key in KEYS:
        if key in stranded:
            await_true(partial(waits_for_version, key, old), f"{key} waits")
        else:
            await_true(partial(has_read, key, sender.sent), f"{key} goes on")
    assert {key for key, version in versions().items() if version == 2} == set(stranded)
    worker(fleet, dispatcher, 2)
    for key in KEYS:
        check(key, sender.sent, newer=key in stranded)


def waits_for_version(key: str, old: Process) -> bool:
    """Whether it waits for a newer worker than this one, and says so."""
    lacks = "its state is of version 2, and no live worker serves that"
    who = re.compile(rf"{lacks}: \S+:{old.pid} serves up to version 1")
    is_ready = ref(key).status() is ActorStatus.READY
    return is_ready and who.search(ref(key).why()) is not None


def check(key: str, sent: int, *, newer: bool) -> None:
    """It has read all that it was sent, once and in order; once newer, never older again."""
    await_true(lambda: has_read(key, sent), f"{key} has read all")
    state = ref(key).state()
    assert [n for n, _ in state.log] == list(range(1, sent + 1))
    by = [version for _, version in state.log]
    assert by == sorted(by), "an older worker had a newer state"
    assert state.read == sent
    assert (2 in by) is newer
