"""A level: what is required, and whether a run reached it."""

from __future__ import annotations

from msgspec import Struct

from bench.pairs import Ratio

STORE_NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


class Verdict(Struct, frozen=True):
    """One level: what is required, what is aimed at, what was found. `met` is of the required."""

    level: str
    required: str
    aimed: str
    measured: str
    met: bool
    reached_aim: bool | None = None

    @property
    def word(self) -> str:
        """The verdict in a word or two; none where nothing is required."""
        if not self.required:
            return ""
        if not self.met:
            return "**not met**"
        return "met, aim reached" if self.reached_aim else "met"


def at_least(level: str, least: float, ratio: Ratio) -> Verdict:
    """The ratio is at least this."""
    shown = f"{ratio.median:.2f}{spread(ratio)}"
    return Verdict(level, f"{least:g}", "", shown, ratio.median >= least)


def at_most(level: str, most: float, ratio: Ratio) -> Verdict:
    """The ratio is at most this."""
    shown = f"{ratio.median:.2f} times{spread(ratio)}"
    return Verdict(level, f"at most {most:g} times", "", shown, ratio.median <= most)


def spread(ratio: Ratio) -> str:
    """The least and the most of the pairs."""
    return f" ({ratio.low:.2f} to {ratio.high:.2f})"
