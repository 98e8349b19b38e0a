"""Who is attended, and through which connection."""

from __future__ import annotations

from longshore.core.intake import Patience
from longshore.core.scheduler import Scheduler
from longshore.dispatcher.roster import Roster
from longshore.model.worker import Attended, KindInfo, WorkerInfo
from longshore.testing.builders import new_id
from longshore.wire.dispatcher_side import FullAttendance


def attended(peer: bytes) -> FullAttendance:
    info = WorkerInfo(id=new_id(), kinds={"fetch": KindInfo()})
    return FullAttendance(peer, info, Attended(1), 0.0, draining=False)


def test_a_connection_that_another_worker_has_by_now_stays_with_that_one() -> None:
    roster = Roster(Scheduler(10, Patience(1.0, 1.0)))
    before, now = attended(b"peer"), attended(b"peer")
    roster.add(before)
    roster.add(now)
    roster.remove(before)
    assert roster.of_peer(b"peer") is now
    assert list(roster) == [now]
