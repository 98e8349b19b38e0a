"""Messages that were dropped: counted, and told in the log at a bounded rate.

Anybody who can connect can send junk as fast as the network carries it. Each message is handled by
itself, so junk costs nobody else anything; nor may it fill a disk.
"""

from __future__ import annotations

import logging
from typing import Final

from longshore.core.throttle import Throttle
from longshore.errors import ProtocolError
from longshore.ports import Clock

log = logging.getLogger("longshore.dispatcher")

QUIET_S: Final = 10.0
"""At most one line in so long, however much is dropped."""

_MOST_CHARS: Final = 300


class DroppedMessages:
    """What one socket's peers sent in vain."""

    def __init__(self, clock: Clock, whose: str) -> None:
        self._clock = clock
        self._whose = whose
        self._seldom = Throttle(QUIET_S)

    def dropped(self, peer: bytes, error: ProtocolError) -> None:
        """A message meant nothing."""
        self._tell("the last from %s: %s", peer.hex(), ascii(str(error)[:_MOST_CHARS]))

    def failed(self, peer: bytes) -> None:
        """The exception that is being handled came of a message that could be decoded."""
        self._tell("the last from %s broke its handler", peer.hex(), with_traceback=True)

    def _tell(self, last: str, *facts: str, with_traceback: bool = False) -> None:
        count = self._seldom.count(self._clock.now())
        if not count:
            return
        what = "message was" if count == 1 else "messages were"
        line = f"%d {what} dropped that came from %s; {last}"
        log.warning(line, count, self._whose, *facts, exc_info=with_traceback)
