"""Counts messages that the dispatcher drops, and logs them at a bounded rate.

Anybody who can connect can send junk as fast as the network carries it. It must not fill a disk.
"""

from __future__ import annotations

import logging
from typing import Final

from longshore.core.throttle import Throttle
from longshore.errors import ProtocolError
from longshore.ports import Clock

log = logging.getLogger("longshore.dispatcher")

QUIET_S: Final = 10.0
"""The log gets at most one line in this time."""

_MOST_CHARS: Final = 300


class DroppedMessages:
    """The messages that one socket dropped."""

    def __init__(self, clock: Clock, whose: str) -> None:
        self._clock = clock
        self._whose = whose
        self._seldom = Throttle(QUIET_S)

    def dropped(self, peer: bytes, error: ProtocolError) -> None:
        """A message could not be decoded."""
        self._tell("the last, from %s: %s", peer.hex(), ascii(str(error)[:_MOST_CHARS]))

    def failed(self, peer: bytes) -> None:
        """A message could be decoded, but its handler raised the current exception."""
        self._tell("the last, from %s, made its handler fail", peer.hex(), with_traceback=True)

    def _tell(self, last: str, *facts: str, with_traceback: bool = False) -> None:
        count = self._seldom.count(self._clock.now())
        if not count:
            return
        what = "message was" if count == 1 else "messages were"
        line = f"%d {what} dropped, from %s; {last}"
        log.warning(line, count, self._whose, *facts, exc_info=with_traceback)
