"""What the engine needs of a store for limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from longshore.model.fair import FairUse
from longshore.model.limits import KeyView, LimitRule, LimitsOpened


class LimitStore(Protocol):
    """The verbs of a store about limits. Claims keep to them by themselves."""

    async def set_limit(self, rule: LimitRule) -> None:
        """Sets the rule for a pattern; from now on it goes before what jobs bring."""

    async def remove_limit(self, pattern: str) -> bool:
        """Removes the rule for a pattern; False if there is none."""

    async def limit_rules(self) -> list[LimitRule]:
        """Every rule, by pattern."""

    async def limit_key(self, key: str) -> KeyView:
        """A key as it is now: what limits it, and who holds its slots."""

    async def limit_keys(
        self, after: str = "", most: int = 25, *, waited_for: bool = False
    ) -> list[str]:
        """The first so many keys after one that the store knows something of, in its order.

        These are keys whose slots are held, that jobs wait for, or whose rate counts; also some
        that were so a while ago. With `waited_for`, only those that jobs wait for.
        """

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        """Lets jobs go before claims again that wait behind keys which have room by now.

        It looks at so many keys that come after this one, and answers the last of them; empty if
        there is none after that. Ends do this for their own keys. This is for what else brings
        room: a loss, a rate, a rule that was changed, a dispatcher that died. It also gives jobs
        their turns that became ready without one (`core.fairness`).
        """

    async def note_use(self, uses: Sequence[FairUse]) -> None:
        """Attempts at jobs of these fair keys ended, after so long."""

    async def fair_place(self, job: UUID) -> tuple[int, bool]:
        """How many ready jobs of its fair key are before a ready job; whether it has no turn yet.

        At most `MOST_BEFORE` are counted.
        """
