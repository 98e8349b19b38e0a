"""Which workers have sessions, and through which connection."""

from __future__ import annotations

import pytest

from longshore.core.admission import Patience
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.sessions.roster import Roster
from longshore.model.worker import Attended, KindInfo, KindTerms, WorkerInfo
from longshore.testing.builders import new_id
from longshore.wire.dispatcher_side import FullSession


def attended(peer: bytes) -> FullSession:
    info = WorkerInfo(id=new_id(), kinds={"fetch": KindInfo()})
    return FullSession(peer, info, Attended(1), 0.0, draining=False)


def a_roster() -> Roster:
    return Roster(Scheduler(10, Patience(1.0, 1.0)))


def test_workers_of_one_connection_are_known_each_by_its_id() -> None:
    roster = a_roster()
    first, second = attended(b"peer"), attended(b"peer")
    roster.add(first)
    roster.add(second)
    assert roster.of_peer(b"peer") == {first.worker: first, second.worker: second}
    roster.remove(first)
    assert roster.of_peer(b"peer") == {second.worker: second}
    roster.remove(second)
    assert roster.of_peer(b"peer") == {}


def test_a_worker_that_comes_by_another_connection_is_known_by_that_one_only() -> None:
    roster = a_roster()
    before = attended(b"peer")
    roster.add(before)
    now = FullSession(b"another", before.info, Attended(2), 0.0, draining=False)
    roster.add(now)
    assert roster.of_peer(b"peer") == {}
    assert roster.of_peer(b"another") == {now.worker: now}


@pytest.mark.parametrize("is_first", [False, True])
def test_what_an_app_declares_counts_beside_a_web_service(is_first: bool) -> None:
    """A service that runs the kind too knows neither its retries nor its parameters."""
    roster, declared = a_roster(), KindInfo(terms=KindTerms(priority=2))
    app = WorkerInfo(id=new_id(), kinds={"fetch": declared})
    service = WorkerInfo(id=new_id(), kinds={"fetch": KindInfo(pool="web")}, service=new_id())
    for info in (service, app) if is_first else (app, service):
        roster.add(FullSession(b"peer", info, Attended(1), 0.0, draining=False))
    assert roster.kinds()["fetch"] == declared
