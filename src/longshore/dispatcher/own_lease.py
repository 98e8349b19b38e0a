"""A dispatcher's own lease, and when the store was last away."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from longshore.config import DispatcherSettings
from longshore.core.leases import is_silent
from longshore.errors import StoreLost, StoreUnavailable
from longshore.ports import Clock

log = logging.getLogger("longshore.dispatcher")


class OwnLease:
    """Whether this dispatcher may grant leases, and whether an outage may explain a loss."""

    def __init__(
        self,
        settings: DispatcherSettings,
        clock: Clock,
        on_lost: Callable[[StoreLost], None] = lambda error: None,
    ) -> None:
        self._on_lost = on_lost
        self._settings = settings
        self._clock = clock
        self._lease_until = float("-inf")
        self._outage_at = float("-inf")
        self._away = False

    def renewed(self, sent_at: float) -> None:
        """The store took a renewal that the dispatcher sent at `sent_at`."""
        self._lease_until = sent_at + self._settings.dispatcher_lease_s
        if self._away:
            self._away = False
            log.info("the store answers again")

    def has_lapsed(self) -> bool:
        """Whether the last renewal is so old that others may have declared the workers lost."""
        renewed_at = self._lease_until - self._settings.dispatcher_lease_s
        margin_s = self._settings.takeover_margin_s
        return is_silent(renewed_at, self._clock.now(), self._settings.lease_s, margin_s)

    def saw_outage(self, error: StoreUnavailable) -> None:
        """The store did not answer."""
        self._outage_at = self._clock.now()
        if isinstance(error, StoreLost):
            self._on_lost(error)
            return
        if not self._away:
            self._away = True
            log.warning("the store does not answer, trying again: %s", error)

    async def surviving(self, work: Callable[[], Awaitable[object]]) -> None:
        """Does some work; notes an outage of the store instead of raising it."""
        try:
            await work()
        except StoreUnavailable as error:
            self.saw_outage(error)

    def lease_s(self) -> float | None:
        """The lease to put into a PONG, if this dispatcher may grant one."""
        return self._settings.lease_s if self._clock.now() < self._lease_until else None

    def silent_s(self) -> float:
        """How long ago it sent the last renewal that the store took."""
        return self._clock.now() - self._lease_until + self._settings.dispatcher_lease_s

    def left_s(self) -> float:
        """For how much longer this dispatcher may grant leases; 0 if it may not."""
        return max(0.0, self._lease_until - self._clock.now())

    @property
    def is_away(self) -> bool:
        """Whether the store did not answer lately."""
        return self._away

    def blames_store(self) -> bool:
        """Whether the store was away so lately that a worker may be lost because of it."""
        return self._clock.now() - self._outage_at < 2 * self._settings.lease_s
