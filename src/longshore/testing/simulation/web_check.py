"""Web workers: one gateway speaks for each, its loss blames no job, and a closed slot stays shut.

It looks at the registrations after each call to the store, and asks the gateways who speaks in
which session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from longshore.model.worker import Attended, SessionKey
from longshore.testing.simulation.database import Committed
from longshore.testing.simulation.gateways import GatewayNode
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.snapshots import Change, WebShot
from longshore.testing.simulation.trace import Trace


class WebCheck:
    """Watches registrations. `is_blameless` says whether nothing lately could harm a service."""

    def __init__(self, trace: Trace, is_blameless: Callable[[], bool]) -> None:
        self.gateways: Sequence[GatewayNode] = ()
        self._trace = trace
        self._is_blameless = is_blameless
        self._shots: dict[UUID, WebShot] = {}
        self._speakers: dict[UUID, str | None] = {}
        """The gateway that speaks for each registration by its last session."""
        self._refused: Counter[str] = Counter()

    # what the store did

    def check(
        self, commit: Committed, changes: Sequence[Change], shots: dict[UUID, WebShot]
    ) -> None:
        """A call was executed."""
        before, self._shots = self._shots, shots
        for id, shot in shots.items():
            if id in before and before[id] != shot:
                self._check_attended(commit.verb, id, before[id], shot)
        self._check_blame(commit.verb, changes, before)
        if isinstance(commit.about, SessionKey) and isinstance(commit.answer, Attended):
            self._check_speaker(commit.about)

    def _check_attended(self, verb: str, id: UUID, before: WebShot, after: WebShot) -> None:
        """A gateway adopts what none attends, each time under a new number, and only so."""
        name = self._trace.name(id)
        if before.worker != after.worker:
            self._trace.names[after.worker] = name
        if before.gateway == after.gateway:
            right = before.adoptions == after.adoptions
        elif after.gateway is None:
            right = after.has_ended or verb == "harvest"
        else:
            right = before.gateway is None and after.adoptions == before.adoptions + 1
        if not right or (before.has_ended and not after.has_ended):
            text = f"{verb} took {name} from {self._words(before)} to {self._words(after)}"
            raise BrokenPromise(Promise.ATTENDED, text)

    def _words(self, shot: WebShot) -> str:
        return f"{self._trace.name(shot.gateway)} (adoption {shot.adoptions})"

    def _check_blame(
        self, verb: str, changes: Sequence[Change], before: dict[UUID, WebShot]
    ) -> None:
        """The loss of a gateway is never a crash of a job."""
        by_worker = {shot.worker: shot for shot in before.values()}
        for job, was, now in changes:
            web = by_worker.get(was.worker) if was.worker is not None else None
            if web is None or now.crashes <= was.crashes:
                continue
            if web.gateway is None:
                text = f"{verb} counts a crash, but its web worker had lost its gateway"
                raise BrokenPromise(Promise.BLAME, text, job)
            # A service that registers as another instance died, perhaps by the job itself.
            if verb != "register_web_worker" and self._is_blameless():
                text = f"{verb} counts a crash, but nothing was amiss with its web worker"
                raise BrokenPromise(Promise.BLAME, text, job)

    def _check_speaker(self, slot: SessionKey) -> None:
        """Who attends a service loses its session to nobody else."""
        found = next((one for one in self._shots.items() if one[1].worker == slot.worker), None)
        if found is None:
            return
        id, shot = found
        attending = next((one.name for one in self.gateways if shot.gateway in one.ids), None)
        speakers = self._speakers_of(id, slot)
        speaker = attending if attending in speakers else next(iter(speakers), None)
        before = self._speakers.get(id)
        self._speakers[id] = speaker
        if attending is not None and before == attending and speaker not in (None, attending):
            name = self._trace.name(id)
            text = f"{speaker} takes {name} from {attending}, which attends it"
            raise BrokenPromise(Promise.ATTENDED, text)

    def _speakers_of(self, id: UUID, slot: SessionKey) -> list[str]:
        return [
            node.name
            for node in self.gateways
            for web in node.lives
            if id in web._proxies
            and web._proxies[id].worker == slot.worker
            and web._proxies[id]._session._asked == slot.session
        ]

    # what services say

    def answered(self, service: str, most: int, refused: bool) -> None:
        """A service answered a health check, or refused a job. It has so many slots."""
        if not refused:
            self._refused.pop(service, None)
            return
        self._refused[service] += 1
        # Its slots may have been given out before the first refusal was heard, or asked for again.
        if self._refused[service] > 3 * most:
            text = f"{service} refused {self._refused[service]} jobs since it was last asked"
            raise BrokenPromise(Promise.HEEDED, text)
