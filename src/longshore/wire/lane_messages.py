"""The request about lanes (see `messages`)."""

from __future__ import annotations

from longshore.wire.actor_messages import Numbered


class ListLanes(Numbered, frozen=True):
    """Which lanes hold jobs, how many, and what holds their ready ones back."""
