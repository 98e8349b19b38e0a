"""Rates as texts: `100/min`, `5/30s`."""

from __future__ import annotations

import re
from typing import Final

from longshore.core.key_limits import why_no_bounds
from longshore.errors import InvalidInput
from longshore.model.limits import Rate

_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_WORDS: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_RATE: Final = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([a-z]+)")


def parse_rate(text: str, burst: int = 1) -> Rate:
    """The rate that a text says; raises `InvalidInput` if it says none."""
    found = _RATE.fullmatch(text.strip())
    if found is None or found[3] not in _WORDS:
        raise InvalidInput(f"{text!r:.100} is no rate; write 100/min, 5/s, 3/h or 10/30s")
    per_s = float(found[2] or 1) * _SECONDS[_WORDS[found[3]]]
    rate = Rate(int(found[1]), per_s, burst)
    if why := why_no_bounds(None, rate):
        raise InvalidInput(why)
    return rate


def rate_text(rate: Rate) -> str:
    """A rate in words that `parse_rate` reads."""
    for word in ("d", "h", "min"):
        if rate.per_s == _SECONDS[word]:
            return f"{rate.units}/{word}"
    return f"{rate.units}/s" if rate.per_s == 1 else f"{rate.units}/{rate.per_s:g}s"
