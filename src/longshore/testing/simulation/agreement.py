"""What must be so when all is calm and done: the store, the dispatchers and the workers agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from longshore.model.worker import DispatcherView, SessionKey, WorkerView
from longshore.ports import Store
from longshore.testing.simulation.cluster import DispatcherNode, WorkerNode
from longshore.testing.simulation.database import at_once
from longshore.wire.dispatcher_side import Session
from longshore.wire.plain import KIND, PlainSession

Views = Mapping[UUID, WorkerView]
"""The live workers, as the store knows them."""


def disagreement(
    store: Store,
    dispatchers: Sequence[DispatcherNode],
    workers: Sequence[WorkerNode],
    plain_workers: int,
) -> str | None:
    """What is not so yet, in words; None if everybody agrees."""
    views = {view.info.id: view for view in at_once(store.workers()) if view.alive}
    found = [_worker(views, dispatchers, worker) for worker in workers]
    found += [_dispatcher(dispatcher, workers) for dispatcher in dispatchers]
    found.append(_ghost(views, workers, plain_workers))
    found.append(_silent(at_once(store.dispatchers()), dispatchers))
    return next((words for words in found if words is not None), None)


def _worker(views: Views, dispatchers: Sequence[DispatcherNode], node: WorkerNode) -> str | None:
    worker = node.worker
    if worker is None or node.process is None:
        return f"{node.name} is down"
    session = worker._session
    view = views.get(session.worker)
    if session.session is None:
        return f"{node.name} is attended by nobody"
    if view is None or view.session != session.session:
        return f"{node.name} believes to be in session {session.session}, the store does not"
    if not session.settled or any(worker._begun.values()):
        return f"{node.name} holds what has ended: {sorted(session.running)}"
    slot = SessionKey(session.worker, session.session)
    for dispatcher in dispatchers:
        attending = _session(dispatcher, slot)
        if attending is not None and dispatcher.dispatcher is not None:
            if view.dispatcher != dispatcher.dispatcher.id:
                return f"{dispatcher.name} attends {node.name}, the store says somebody else"
            return _slots(dispatcher, node, attending)
    return f"no dispatcher attends {node.name} in session {session.session}"


def _session(node: DispatcherNode, slot: SessionKey) -> Session | None:
    if node.process is None or node.dispatcher is None:
        return None
    return node.dispatcher._roster.of_session(slot)


def _slots(dispatcher: DispatcherNode, node: WorkerNode, session: Session) -> str | None:
    if session.placed or session.free != session.info.pools:
        placed = sorted(session.placed)
        return f"{dispatcher.name} believes that {node.name} runs {placed}: {session.free} free"
    return None


def _dispatcher(node: DispatcherNode, workers: Sequence[WorkerNode]) -> str | None:
    if node.dispatcher is None or node.up_since is None:
        return f"{node.name} is down"
    ids = {worker.id for worker in workers}
    for session in node.dispatcher._roster:
        is_web = session.info.gateway or session.info.service is not None
        if session.info.id not in ids and not isinstance(session, PlainSession) and not is_web:
            return f"{node.name} attends {session.info.name}, which is gone"
    return None


def _ghost(views: Views, workers: Sequence[WorkerNode], plain_workers: int) -> str | None:
    ids = {worker.id for worker in workers}
    ours = [view for view in views.values() if not view.info.gateway and not view.info.service]
    others = [view for view in ours if view.info.id not in ids]
    plain = [view for view in others if KIND in view.info.kinds]
    if len(others) > len(plain):
        names = ", ".join(view.info.name for view in others)
        return f"the store has these workers alive, which are gone: {names}"
    if len(plain) != plain_workers:
        return f"there are {plain_workers} plain workers, {len(plain)} in the store"
    return None


def _silent(views: Sequence[DispatcherView], dispatchers: Sequence[DispatcherNode]) -> str | None:
    living = {node.dispatcher.id for node in dispatchers if node.dispatcher is not None}
    for dispatcher in views:
        if dispatcher.id not in living:
            return f"the store has dispatcher {dispatcher.name}, which is gone"
    return None
