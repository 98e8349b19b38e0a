"""How often a gateway looks for news of what it streams."""

from __future__ import annotations

from typing import Final

from longshore.config import GatewaySettings

_SLOWER: Final = 1.5


class Pace:
    """How long to pause between two looks: longer and longer while there is no news."""

    def __init__(self, settings: GatewaySettings, most_s: float | None = None) -> None:
        self._least_s = settings.stream_poll_s
        self._most_s = settings.stream_idle_poll_s if most_s is None else most_s
        self._pause_s = self._least_s

    def pause_s(self, *, is_news: bool) -> float:
        """The next pause, after a look that brought news or did not."""
        self._pause_s = self._least_s if is_news else min(self._pause_s * _SLOWER, self._most_s)
        return self._pause_s
