"""What gateways ask of a dispatcher for web workers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, assert_never
from uuid import UUID

from longshore.config import DispatcherSettings
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.signatures import fleet_key
from longshore.core.web_workers import check_registration
from longshore.dispatcher.access import Tokens
from longshore.dispatcher.commits import Commits
from longshore.dispatcher.ends import Ends
from longshore.dispatcher.sessions.roster import Roster
from longshore.errors import NotAllowed, NotFound, from_code
from longshore.model.attempt import Attempt
from longshore.model.job import Job, JobState, Refused, Verdict
from longshore.model.web_worker import ENDED_WEB_STATES, WebWorker
from longshore.ports import Store
from longshore.wire import web_messages as w

log = logging.getLogger("longshore.dispatcher")

MOST_PRINCIPALS: Final = 10_000


class WebService:
    """The use cases of gateways, over one store."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        roster: Roster,
        commits: Commits,
        ends: Ends,
        tokens: Tokens,
    ) -> None:
        self._store = store
        self._settings = settings
        self._roster = roster
        self._commits = commits
        self._ends = ends
        self._tokens = tokens
        self._principals: dict[UUID, str] = {}
        """Who registered the services that gateways attend: that never changes."""

    async def perform(self, request: w.WebRequest, principal: str | None = None) -> object:
        """Does what a request asks for; answers with what OK carries.

        `principal` is who asks, if that one may speak only for services that it registered.
        """
        match request:
            case w.RegisterWebWorker():
                return await self.register(request)
            case w.ResignWebWorker():
                return await self.resign(request, principal)
            case w.AttendWebWorkers():
                return await self.attend(request)
            case w.ListWebWorkers():
                return await self._store.web_workers(request.web_workers)
            case w.ReportEnd():
                return await self.report(request, principal)
            case w.ShowFleetKey():
                return fleet_key(await self._store.callback_secret())
            case _:
                assert_never(request)

    async def register(self, request: w.RegisterWebWorker) -> w.Registered:
        """Registers a service. The jobs of one that it replaces, which died, are ready again."""
        check_registration(request.said)
        most, crash_limit = self._settings.max_web_workers, self._settings.crash_limit
        answer = await self._store.register_web_worker(request.id, request.said, most, crash_limit)
        if isinstance(answer, Refused):
            raise from_code(answer.code, answer.message)
        self._commits.harvested(answer.freed)
        return w.Registered(answer.web_worker, answer.existing)

    async def resign(self, request: w.ResignWebWorker, principal: str | None = None) -> bool:
        """Ends a registration; False if it had ended before."""
        id = request.web_worker
        found = [one for one in await self._store.web_workers([id]) if one.id == id]
        if not found:
            raise NotFound(f"there is no web worker {id}")
        # Who registered it never changes: another principal gets a registration of its own.
        if principal is not None and found[0].registration.principal != principal:
            raise NotAllowed(
                f"web worker {id} is registered by another principal; have that one resign it, "
                "or use a token of the role admin"
            )
        freed = await self._store.resign_web_worker(id)
        if freed is not None:
            self._commits.harvested(freed)
        return freed is not None

    async def attend(self, request: w.AttendWebWorkers) -> w.Attendance:
        """Notes what a gateway found out, and gives it its share of what no gateway attends.

        What it attends by the store but does not name, it is given again: an answer got lost. A
        service whose token is worth nothing any more has its registration ended here.
        """
        await self._end_strangers(request.attended)
        if request.notes:
            await self._store.note_web_workers(request.gateway, request.notes)
        found = await self._store.web_attendance(request.gateway)
        named = frozenset(request.attended)
        taken: list[WebWorker] = []
        if forgotten := found.mine - named:
            taken += await self._forgotten(request.gateway, forgotten)
        if found.free or not found.known:
            taken += await self._store.adopt_web_workers(request.gateway)
        gone = named - found.mine
        ended = gone and gone - {
            one.id
            for one in await self._store.web_workers(sorted(gone))
            if one.state not in ENDED_WEB_STATES
        }
        return w.Attendance(tuple(taken), tuple(gone - ended), tuple(ended))

    async def _end_strangers(self, attended: Sequence[UUID]) -> None:
        """Ends the registrations of those whose token was revoked, or has expired."""
        await self._learn([id for id in attended if id not in self._principals])
        bad = {
            principal
            for principal in {self._principals.get(id, "") for id in attended} - {""}
            if not await self._tokens.is_good(bytes.fromhex(principal))
        }
        for id in attended:
            if self._principals.get(id) in bad:
                log.warning("web worker %s is let go: its token was revoked, or expired", id)
                freed = await self._store.resign_web_worker(id)
                if freed is not None:
                    self._commits.harvested(freed)

    async def _learn(self, ids: Sequence[UUID]) -> None:
        if not ids:
            return
        if len(self._principals) + len(ids) > MOST_PRINCIPALS:
            self._principals.clear()
        for one in await self._store.web_workers(ids):
            self._principals[one.id] = one.registration.principal

    async def _forgotten(self, gateway: UUID, ids: frozenset[UUID]) -> list[WebWorker]:
        listed = await self._store.web_workers(sorted(ids))
        live = [one for one in listed if one.state not in ENDED_WEB_STATES]
        return [one for one in live if one.id in ids and one.gateway == gateway]

    async def report(self, request: w.ReportEnd, principal: str | None = None) -> Verdict:
        """Records an end that a service told to some gateway, if the service owns the attempt."""
        report = request.report
        job = await self._store.job(report.job)
        if job is None:
            raise NotFound(f"there is no job {report.job}")
        if job.token != report.token:
            return Verdict.STALE
        if job.state in TERMINAL:
            return Verdict.ALREADY_RECORDED
        owner = await self._owner(job)
        if owner is None or request.web_worker not in (None, owner.id):
            return Verdict.STALE
        if principal is not None and owner.registration.principal != principal:
            return Verdict.STALE  # tokens of attempts can be guessed: they prove no owner
        session = self._roster.of_worker(owner.worker)
        return await self._ends.record_for(session, report, _attempt(job, owner.worker))

    async def _owner(self, job: Job) -> WebWorker | None:
        """The service that has a job. A token alone does not let anybody end a job."""
        if job.worker is None or job.state not in OWNED:
            return None
        found = await self._store.web_workers([job.worker])
        return next((one for one in found if one.worker == job.worker), None)


def _attempt(job: Job, worker: UUID) -> Attempt:
    return Attempt(
        job.id,
        job.number,
        job.token,
        job.kind,
        job.args,
        job.options,
        worker,
        0,
        job.attempt,
        job.failures,
        job.crashes,
        job.state is JobState.CANCELLING,
        job.priority,
        round=job.round,
    )
