"""One web service, and the gateway that speaks for it.

Theory. A health check that the service answers becomes a PING; the first one, READY. What the
dispatcher gives (JOBS) is posted to the service, what it wants stopped (ABORT) is deleted there. An
attempt is *in doubt* while the service may or may not have it: its answer got lost, or another
gateway may have posted it. Then this one asks for it first. What is not there may have ended, and
another gateway took its result. So this one forgets it, and posts it if the dispatcher, which reads
the store before that, gives it once more.

A service that does not answer `web_max_retries` checks is dead: it gets no more jobs, and is asked
less often. Its jobs are freed no sooner than the lease that it was promised with its last answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from math import inf
from typing import Final, TypeVar, assert_never
from uuid import UUID

from longshore.config import GatewaySettings
from longshore.core.web_workers import lease_of, promised_of
from longshore.gateway.service_client import MAX_WORDS, Failing, Health, ServiceClient, refusal
from longshore.links.outbound import Answer
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.job import JobError, Reason, Verdict
from longshore.model.reports import CancelReport, FailureReport, NotBegunReport, Report
from longshore.model.web_worker import SESSIONS_PER_ADOPTION, WebNote, WebState, WebWorker
from longshore.model.worker import KindInfo
from longshore.ports import Clock
from longshore.wire import messages as m
from longshore.wire import worker_side as side
from longshore.wire.proxy_side import WEB_POOL, ProxiedSession

log = logging.getLogger("longshore.gateway")

CONFIRM_S: Final = 60.0
"""After so long what the store heard of a service is said again."""
MAX_STOPS: Final = 100
"""So many attempts at once are deleted at a service; the others after its next answer."""
MOST_TRIES: Final = 3
"""An attempt that a service neither takes nor refuses so often goes back, if it is not there."""

SAY_AGAIN_S: Final = 0.6
"""How often a dispatcher is told for a while what a service does not have. Dispatchers send lost
attempts again a little more often."""
UNAVAILABLE: Final = frozenset({429, 502, 503, 504})
"""A service, or a proxy before it, answers so while it cannot take anything."""
MOST_ABSENT: Final = 1_000
"""So many attempts are remembered that the service did not have."""

_T = TypeVar("_T")

Say = Callable[[Sequence[m.WorkerMessage]], None]
Spawn = Callable[[Coroutine[None, None, None]], None]


def ready_of(web: WebWorker, settings: GatewaySettings, lease_s: float) -> m.Ready:
    """The READY with which a gateway speaks for a service; `lease_s` is a gateway's own lease."""
    adopted_s = lease_s + settings.web_adoption_s
    said = web.registration
    return m.Ready(
        v=m.PROTOCOL_VERSION,
        worker=web.worker,
        name=f"{said.host}:{said.port}",
        host=said.host,
        kinds={kind: KindInfo(pool=WEB_POOL) for kind in said.kinds},
        target=said.target,
        pools={WEB_POOL: said.max_jobs},
        service=web.id,
        lease_s=lease_of(settings.web_ping_interval_s, settings.web_max_retries, adopted_s),
    )


class WebProxy:
    """Speaks for one service. `say` sends messages, `spawn` starts work that may take time."""

    def __init__(
        self,
        web: WebWorker,
        settings: GatewaySettings,
        lease_s: float,
        client: ServiceClient,
        clock: Clock,
        *,
        patience: side.Patience,
        say: Say,
        spawn: Spawn,
        new_id: Callable[[], UUID],
    ) -> None:
        self.id = web.id
        self.state = web.state
        self.check_at = clock.now()
        """When the next health check is due."""
        self.next_worker: UUID | None = None
        """The worker that the service is to be from now on, once the store knows it."""
        self._settings = settings
        self._client = client
        self._clock = clock
        self._say = say
        self._spawn = spawn
        self._new_id = new_id
        retries, every_s = settings.web_max_retries, settings.web_ping_interval_s
        self._promised_s = promised_of(every_s, retries, lease_s + settings.web_adoption_s)
        first = web.adoptions * SESSIONS_PER_ADOPTION
        self._session = ProxiedSession(ready_of(web, settings, lease_s), patience, first)
        self._failed = web.failed_pings
        self._error = web.last_error
        self._heard_at = clock.now()
        self._checking = False
        self._check_no = 0
        self._check_of_ping: tuple[int, int] = (0, 0)
        self._counted = 0
        self._answered_no = self._check_of_ready = 0
        self._has_joined = False
        self._is_draining = False
        self._is_connected = False
        self._doubts: dict[int, tuple[Assignment, int]] = {}
        """Attempts in doubt, and how often they were tried."""
        self._may_have = False
        """Whether what the dispatcher gives may be with the service already."""
        self._was_attended = web.adoptions > 1
        """Whether some gateway may have posted something to the service before."""
        self._absent: dict[int, int] = {}
        """Attempts that the service did not have, and how often they were tried."""
        self._say_at = self._say_until = 0.0
        """From when to when the dispatcher is told what the service does not have."""
        self._given: set[int] = set()
        """Attempts that a dispatcher gave to this proxy."""
        self._stopping: set[int] = set()
        self._posting: set[int] = set()
        self._posted_at: dict[int, float] = {}
        """When the last POST of each attempt ended."""
        """Attempts on their way to the service: that it does not have them says nothing."""
        self._untold: WebNote | None = None
        self._confirm_at = inf
        """When to say once more what was said: an earlier note may have come after it."""
        self._waiting: dict[int, asyncio.Future[Verdict]] = {}

    @property
    def worker(self) -> UUID:
        """The worker that the service is."""
        return self._session.worker

    @property
    def has_room(self) -> bool:
        """Whether the service is believed to run jobs."""
        return self.state is WebState.ALIVE

    # the dialogue with the dispatcher

    def connect(self) -> None:
        """There is a new connection to a dispatcher."""
        self._is_connected = True
        self._greet()

    def _greet(self) -> None:
        """Says READY, if the service has answered."""
        if self._has_joined and self._is_connected:
            self._may_have = self._was_attended
            self._was_attended = True
            self._absent.clear()
            self._check_of_ready = self._answered_no
            self._session.connected(self._clock.now())
            self._flush()

    def receive(self, message: m.DispatcherMessage) -> None:
        """A message came for the worker that the service is."""
        self._apply(self._session.receive(self._clock.now(), message))
        check, ping = self._check_of_ping
        if ping and self._session.counted >= ping:
            self._counted = check
        self._flush()

    def tick(self, now: float) -> None:
        """Time has passed."""
        if not self._checking and now >= self.check_at and self.state is not WebState.REMOVED:
            self._checking = True
            self._spawn(self._check())
        if now >= self._confirm_at:
            self._confirm_at = inf
            self._untold = self._untold or self._found_out()
        if self._absent and self._say_at <= now < self._say_until:
            self._say_at = now + SAY_AGAIN_S
            self._session.say_again(now)
            self._flush()
        wake_at = self._session.wake_at()
        if wake_at is not None and now >= wake_at:
            self._apply(self._session.tick(now))
            self._flush()
        if self._is_draining and self._session.settled and self.state is not WebState.REMOVED:
            self.leave("drained")
            self.state = WebState.REMOVED
            self._note()
        if self.state is WebState.DEAD and now >= self._heard_at + self._promised_s:
            self._let_go(f"it did not answer {self._failed} health checks: {self._error}")

    def _flush(self) -> None:
        if self._is_connected:
            self._say(self._session.flush())

    def _apply(self, events: Sequence[side.Event]) -> None:
        for event in events:
            match event:
                case side.Start(assignment):
                    self._start(assignment)
                case side.Stop(attempt):
                    self._stop(attempt)
                case side.StopAll():
                    # Not what the service has from elsewhere: another gateway may attend it now.
                    for attempt in self._session.running:
                        if attempt[1] in self._given:
                            self._stop(attempt)
                case side.Joined():
                    # WELCOME grants a lease from READY on, which the answer came before.
                    self._counted = max(self._counted, self._check_of_ready)
                    # Its next answer settles what the two sides know of each other.
                    self.check_at = self._clock.now()
                case side.Moved():
                    self._greet()
                case side.Orphaned(reason):
                    self._orphaned(reason)
                case side.Dismissed(reason):
                    self._dismissed(reason)
                case side.Recorded(recorded, stale):
                    self._recorded(recorded, Verdict.RECORDED)
                    self._recorded(stale, Verdict.STALE)
                case _:
                    assert_never(event)

    def _dismissed(self, reason: str) -> None:
        """It is to drain: it finishes what it runs, then it is removed. Or READY was refused."""
        log.warning("web worker %s is sent away: %s", self.id, reason)
        if self._session.session is None:
            self._has_joined = False
        elif not self._is_draining:
            self._is_draining = True
            self._error = reason
            self._session.drain(self._clock.now())

    def _orphaned(self, reason: str) -> None:
        """The worker was declared lost: the service goes on as another one."""
        log.warning("web worker %s comes back as another worker: %s", self.id, reason)
        self._has_joined = False
        self._counted = 0
        self.next_worker = self._new_id()
        self._doubts.clear()

    def become(self, worker: UUID) -> None:
        """The store knows the new worker that the service is."""
        self.next_worker = None
        self._session.rejoin(worker, self._clock.now())
        # It says READY once the service has answered.
        self._session.flush()
        if self.state is not WebState.DEAD:
            self.check_at = self._clock.now()

    def _let_go(self, why: str) -> None:
        """The service is lost: the dispatcher frees its jobs."""
        if self._has_joined:
            log.warning("web worker %s is lost: %s", self.id, why)
            self._session.lost(why)
            self._flush()
            self._orphaned(why)

    def leave(self, reason: str) -> None:
        """Nobody speaks for the service any more."""
        self._session.bye(reason)
        self._flush()

    def hush(self) -> None:
        """Says nothing more: whoever attends the service next goes on with its jobs."""
        self.state = WebState.REMOVED
        self._is_connected = False

    # health

    async def _check(self) -> None:
        asked_at = self._clock.now()
        self._check_no += 1
        no = self._check_no
        self.check_at = asked_at + self._settings.web_ping_interval_s
        try:
            answer = await _answer(self._client.health(no, self._counted, self._promised_s))
        finally:
            self._checking = False
        if isinstance(answer, Failing):
            self._unwell(answer.why)
        else:
            self._well(no, answer, asked_at)

    def _well(self, no: int, health: Health, asked_at: float) -> None:
        now = self._clock.now()
        self._heard_at = now
        self._answered_no = no
        if self._failed or self.state is not WebState.ALIVE:
            self.state, self._failed, self._error = WebState.ALIVE, 0, ""
            self._note()
        if self.next_worker is not None:
            return
        self._given = {token for token in self._given if self._session.job_of(token) is not None}
        self._posted_at = {
            token: self._posted_at[token] for token in self._posted_at.keys() & self._given
        }
        # First: what it was told to stop, and does not run any more, it has not forgotten.
        self._settle_stops(health, asked_at)
        self._session.say_held(now, health.held, asked_at)
        if self._has_joined:
            self._session.answered(now)
            self._check_of_ping = no, self._session.last_ping
        else:
            self._has_joined = True
            self._greet()
        self._settle_doubts()
        self._flush()

    def _unwell(self, why: str) -> None:
        self._failed += 1
        self._error = why
        retries = self._settings.web_max_retries
        if self._failed >= retries:
            if self.state is not WebState.DEAD:
                log.warning("web worker %s is dead: %s", self.id, why)
            self.state = WebState.DEAD
            self.check_at = self._clock.now() + self._settings.web_dead_ping_interval_s
        is_free = self._clock.now() >= self._heard_at + self._promised_s
        if is_free and self._failed >= retries + self._settings.web_remove_after:
            self._let_go(why)
            self.state = WebState.REMOVED
        self._note()

    def _note(self) -> None:
        self._untold = self._found_out()
        self._confirm_at = self._clock.now() + CONFIRM_S

    def _found_out(self) -> WebNote:
        return WebNote(self.id, self.state, self._failed, self._error[:300])

    def take_note(self) -> WebNote | None:
        """What the store should hear of the service."""
        note, self._untold = self._untold, None
        if self.next_worker is not None:
            return WebNote(self.id, self.state, self._failed, self._error[:300], self.next_worker)
        return note

    def keep_note(self, note: WebNote) -> None:
        """The store did not hear it: it is told again, unless there is something newer."""
        self._untold = self._untold or note

    # attempts

    def _start(self, one: Assignment) -> None:
        self._given.add(one.token)
        if self.state is not WebState.ALIVE:
            self._hand_back(one.key)
        elif one.token in self._absent:
            self._spawn(self._give(one, self._absent.pop(one.token)))
        elif self._may_have:
            self._spawn(self._ask_for(one, 0))
        else:
            self._spawn(self._give(one, 0))

    async def _ask_for(self, one: Assignment, tries: int) -> None:
        """Asks whether the service has an attempt."""
        has = await _answer(self._client.has(one.job, one.token))
        if isinstance(has, Failing):
            self._doubt(one, tries + 1)
        elif has:
            self._taken(one.token)
        elif tries >= MOST_TRIES:
            self._hand_back(one.key)
        elif self._session.job_of(one.token) is not None:
            self._session.forget(one.token)
            if len(self._absent) >= MOST_ABSENT:
                self._absent.clear()
            self._absent[one.token] = tries
            self._say_until = self._clock.now() + 5 * SAY_AGAIN_S

    async def _give(self, one: Assignment, tries: int) -> None:
        answer = await self._post(one)
        if isinstance(answer, Failing):
            if answer.reached:
                self._doubt(one, tries + 1)
            else:
                self._hand_back(one.key)
        elif answer.is_success:
            self._taken(one.token)
        elif answer.status == 409:
            self._hand_back(one.key)
        elif answer.status in UNAVAILABLE:
            await self._put_off(one, tries)
        elif answer.status < 500 or await _answer(self._client.has(one.job, one.token)) is False:
            words = f"the web worker refused the job: {refusal(answer)}"
            self._ended(FailureReport(one.job, one.token, error=JobError(Reason.RAISED, words)))
        else:
            self._doubt(one, tries + 1)

    async def _put_off(self, one: Assignment, tries: int) -> None:
        """Whoever stands before the service cannot reach it now: that is not the job's fault."""
        if await _answer(self._client.has(one.job, one.token)) is False:
            self._hand_back(one.key)
        else:
            self._doubt(one, tries + 1)

    async def _post(self, one: Assignment) -> Answer | Failing:
        """Posts an attempt. If it is to be stopped by then, its DELETE may have come first."""
        self._posting.add(one.token)
        try:
            answer = await _answer(self._client.give(one, self._counted, self._promised_s))
        finally:
            self._posting.discard(one.token)
            self._posted_at[one.token] = self._clock.now()
        if one.token in self._stopping:
            self._spawn(self._delete(one.key))
        return answer

    def _taken(self, token: int) -> None:
        self._doubts.pop(token, None)
        self._session.taken(token, self._clock.now())

    def _doubt(self, one: Assignment, tries: int) -> None:
        if self._session.job_of(one.token) is not None:
            self._doubts[one.token] = one, tries

    def _settle_doubts(self) -> None:
        """The service answers again: asks it for what is in doubt."""
        self._may_have = self._may_have and self._session.session is None
        doubts, self._doubts = self._doubts, {}
        for one, tries in doubts.values():
            if not self._session.has_taken(one.token) and one.token not in self._stopping:
                self._spawn(self._ask_for(one, tries))

    def _settle_stops(self, health: Health, asked_at: float) -> None:
        """What the service may still run is stopped again, and what it does not has stopped.

        An answer that was asked for before a POST ended says nothing about that attempt.
        """
        for token in list(self._stopping):
            job = self._session.job_of(token)
            if token in self._posting:
                continue
            if job is None:
                self._stopping.discard(token)
            elif health.held is None or (job, token) in health.held:
                self._spawn(self._delete((job, token)))
            elif self._posted_at.get(token, -inf) < asked_at:
                self._stopped((job, token))

    def _hand_back(self, attempt: AttemptKey) -> None:
        """The service has no room although it should have: its slot is closed for now."""
        if self._session.job_of(attempt[1]) is not None:
            self._session.close_slot(self._clock.now())
            self._ended(NotBegunReport(*attempt))

    def _stop(self, attempt: AttemptKey) -> None:
        if attempt[1] not in self._stopping and len(self._stopping) < MAX_STOPS:
            self._stopping.add(attempt[1])
            self._spawn(self._delete(attempt))

    async def _delete(self, attempt: AttemptKey) -> None:
        # A DELETE that is sent while its POST is under way may overtake it.
        may_overtake = attempt[1] in self._posting
        answer = await self._client.stop(*attempt)
        if isinstance(answer, Failing):
            return
        is_absent = answer.status in (404, 410) and not may_overtake
        if is_absent or answer.status in (200, 204):
            self._stopped(attempt)

    def _stopped(self, attempt: AttemptKey) -> None:
        """The service does not run an attempt any more. If it was not its own, nobody minds."""
        self._ended(CancelReport(*attempt))

    def _ended(self, report: Report) -> None:
        self._doubts.pop(report.token, None)
        self._stopping.discard(report.token)
        self._session.ended(report)
        if not isinstance(report, NotBegunReport):
            self._session.open_slot(self._clock.now())
        self._flush()

    # results

    def owns(self, attempt: AttemptKey) -> bool:
        """Whether the service has this attempt, as far as this gateway knows."""
        return self._session.job_of(attempt[1]) == attempt[0]

    async def report(self, report: Report, within_s: float) -> Verdict | None:
        """Reports an end that the service told; None if no dispatcher confirms it in time."""
        if self._session.session is None:
            return None
        waiting = self._waiting.get(report.token)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[report.token] = waiting
            self._ended(report)
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), within_s)
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(report.token, None)

    def _recorded(self, attempts: Sequence[AttemptKey], verdict: Verdict) -> None:
        for _, token in attempts:
            waiting = self._waiting.get(token)
            if waiting is not None and not waiting.done():
                waiting.set_result(verdict)


async def _answer(call: Awaitable[_T]) -> _T | Failing:
    """What a call of the service gave; a defect of the call counts as no good answer."""
    try:
        return await call
    except Exception as error:
        log.exception("a call of a web worker failed")
        return Failing(f"the call failed: {type(error).__name__}: {error}"[:MAX_WORDS])
