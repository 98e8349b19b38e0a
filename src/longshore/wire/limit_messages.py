"""The requests about limits (see `messages`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from longshore.model.limits import KeyView, LimitRule, Rate
from longshore.wire.actor_messages import Numbered


class SetLimit(Numbered, frozen=True, omit_defaults=True):
    """Set the rule for the keys that match a pattern; it holds at once, for what waits too."""

    id: UUID
    pattern: str
    concurrency: int | None = None
    rate: Rate | None = None
    weight: float | None = None


class RemoveLimit(Numbered, frozen=True):
    """Remove the rule for a pattern."""

    id: UUID
    pattern: str


class ListLimits(Numbered, frozen=True):
    """Which rules there are."""


class ShowKey(Numbered, frozen=True):
    """What limits a key, and which jobs hold its slots."""

    key: str


class ListKeys(Numbered, frozen=True, omit_defaults=True):
    """The first so many keys after one that something is known of, each as SHOWKEY shows it.

    With `waited_for`, only those that jobs wait for.
    """

    after: str = ""
    most: int = 25
    waited_for: bool = False


LimitRequest = SetLimit | RemoveLimit | ListLimits | ShowKey | ListKeys

LIMIT_ANSWERS: Final[dict[type, Any]] = {
    SetLimit: None,
    RemoveLimit: None,
    ListLimits: tuple[LimitRule, ...],
    ShowKey: KeyView,
    ListKeys: tuple[KeyView, ...],
}
