"""What must be so of web workers when all is calm: each has one gateway, in one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from longshore.model.web_worker import WebState, WebWorker
from longshore.model.worker import SessionKey, WorkerView
from longshore.ports import Store
from longshore.testing.simulation.cluster import DispatcherNode
from longshore.testing.simulation.database import at_once
from longshore.testing.simulation.gateways import GatewayNode
from longshore.testing.simulation.services import ServiceNode


def web_disagreement(
    store: Store,
    dispatchers: Sequence[DispatcherNode],
    gateways: Sequence[GatewayNode],
    services: Sequence[ServiceNode],
) -> str | None:
    """What is not so yet, in words; None if everybody agrees."""
    views = {view.info.id: view for view in at_once(store.workers()) if view.alive}
    listed = {one.id: one for one in at_once(store.web_workers())}
    found = [_service(listed, views, dispatchers, gateways, one) for one in services]
    found += [_gateway(views, one) for one in gateways]
    known = {one.worker for one in listed.values() if one.state is WebState.ALIVE}
    found += [
        f"the store has {view.info.name} alive, which no registration is"
        for view in views.values()
        if view.info.service is not None and view.info.id not in known
    ]
    return next((words for words in found if words is not None), None)


def _gateway(views: Mapping[UUID, WorkerView], node: GatewayNode) -> str | None:
    if node.web is None:
        return f"{node.name} is down"
    own = [id for id, view in views.items() if view.info.gateway and id in node.ids]
    if own != [node.web._gateway]:
        return f"the store has {node.name} {len(own)} times, or as another worker"
    return None


def _service(
    listed: Mapping[UUID, WebWorker],
    views: Mapping[UUID, WorkerView],
    dispatchers: Sequence[DispatcherNode],
    gateways: Sequence[GatewayNode],
    node: ServiceNode,
) -> str | None:
    service = node.service
    if service is None or service.id is None or node.process is None:
        return f"{node.name} is not registered"
    web = listed.get(service.id)
    if web is None or web.state is not WebState.ALIVE:
        return f"the store does not have {node.name} as alive"
    if service.jobs:
        return f"{node.name} runs what has ended: {list(service.jobs.values())}"
    attending = [one for one in gateways if one.web is not None and web.id in one.web._proxies]
    if [web.gateway] != [one.web._gateway for one in attending if one.web is not None]:
        return f"{node.name} is attended by {[one.name for one in attending]}, by the store not"
    proxies = attending[0].web._proxies if attending[0].web is not None else {}
    session = proxies[web.id]._session
    view = views.get(web.worker)
    if view is None or session.session is None or view.session != session.session:
        return f"{node.name} is in session {session.session}, by the store it is not"
    return _slots(dispatchers, node, SessionKey(session.worker, session.session))


def _slots(
    dispatchers: Sequence[DispatcherNode], node: ServiceNode, slot: SessionKey
) -> str | None:
    for one in dispatchers:
        if one.process is None or one.dispatcher is None:
            continue
        session = one.dispatcher._roster.of_session(slot)
        if session is not None:
            if session.placed or session.free != session.info.pools:
                placed = sorted(session.placed)
                return f"{one.name} believes that {node.name} runs {placed}: {session.free} free"
            return None
    return f"no dispatcher attends {node.name} in session {slot.session}"
