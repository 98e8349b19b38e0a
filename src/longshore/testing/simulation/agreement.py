"""What must be so when all is calm and done: the store, the dispatchers and the workers agree."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.model.worker import Seat
from longshore.testing.memory import MemoryStore
from longshore.testing.simulation.cluster import DispatcherNode, WorkerNode
from longshore.wire.dispatcher_side import Attendance
from longshore.wire.plain import KIND, PlainAttendance


def disagreement(
    store: MemoryStore,
    dispatchers: Sequence[DispatcherNode],
    workers: Sequence[WorkerNode],
    plain_workers: int,
) -> str | None:
    """What is not so yet, in words; None if everybody agrees."""
    found = [_worker(store, dispatchers, worker) for worker in workers]
    found += [_dispatcher(dispatcher, workers) for dispatcher in dispatchers]
    found.append(_ghost(store, dispatchers, workers, plain_workers))
    return next((words for words in found if words is not None), None)


def _worker(
    store: MemoryStore, dispatchers: Sequence[DispatcherNode], node: WorkerNode
) -> str | None:
    worker = node.worker
    if worker is None or node.process is None:
        return f"{node.name} is down"
    session = worker._session
    row = store._workers.get(session.worker)
    if session.session is None:
        return f"{node.name} is attended by nobody"
    if row is None or not row.alive or row.session != session.session:
        return f"{node.name} believes to be in session {session.session}, the store does not"
    if not session.settled or any(worker._busy.values()) or worker._pool_of:
        return f"{node.name} holds what has ended: {sorted(session.running)}"
    seat = Seat(session.worker, session.session)
    for dispatcher in dispatchers:
        attendance = _attendance(dispatcher, seat)
        if attendance is not None and dispatcher.dispatcher is not None:
            if row.dispatcher != dispatcher.dispatcher.id:
                return f"{dispatcher.name} attends {node.name}, the store says somebody else"
            return _slots(dispatcher, node, attendance)
    return f"no dispatcher attends {node.name} in session {session.session}"


def _attendance(node: DispatcherNode, seat: Seat) -> Attendance | None:
    if node.process is None or node.dispatcher is None:
        return None
    return node.dispatcher._roster.of_seat(seat)


def _slots(dispatcher: DispatcherNode, node: WorkerNode, attendance: Attendance) -> str | None:
    if attendance.placed or attendance.free != attendance.info.pools:
        placed = sorted(attendance.placed)
        return f"{dispatcher.name} believes that {node.name} runs {placed}: {attendance.free} free"
    return None


def _dispatcher(node: DispatcherNode, workers: Sequence[WorkerNode]) -> str | None:
    if node.dispatcher is None or node.up_since is None:
        return f"{node.name} is down"
    ids = {worker.id for worker in workers}
    for attendance in node.dispatcher._roster:
        if attendance.info.id not in ids and not isinstance(attendance, PlainAttendance):
            return f"{node.name} attends {attendance.info.name}, which is gone"
    return None


def _ghost(
    store: MemoryStore,
    dispatchers: Sequence[DispatcherNode],
    workers: Sequence[WorkerNode],
    plain_workers: int,
) -> str | None:
    ids = {worker.id for worker in workers}
    others = [row for row in store._workers.values() if row.alive and row.info.id not in ids]
    plain = [row for row in others if KIND in row.info.kinds]
    if len(others) > len(plain):
        names = ", ".join(row.info.name for row in others)
        return f"the store has these workers alive, which are gone: {names}"
    if len(plain) != plain_workers:
        return f"there are {plain_workers} plain workers, {len(plain)} in the store"
    living = {node.dispatcher.id for node in dispatchers if node.dispatcher is not None}
    for dispatcher in store._dispatchers.values():
        if dispatcher.id not in living:
            return f"the store has dispatcher {dispatcher.name}, which is gone"
    return None
