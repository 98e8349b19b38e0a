"""Watchers: who is told when a job or a group has ended, however it ended.

A job has its watchers in its options, a group in its head. Whatever ends one of them writes a
`Notice` in the same transaction, and any dispatcher then has the store deliver it
(`Store.tell_watchers`). So an end is told once for each round, whoever dies in between.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

DEFAULT_METHOD = "POST"


class ActorWatcher(Struct, frozen=True, omit_defaults=True, gc=False, tag_field="to", tag="actor"):
    """An actor that gets a message, which its handler `name` takes.

    `about` is what the actor wants to find again in the message.
    """

    type: str
    key: str
    name: str
    about: bytes = b""


class CallbackWatcher(Struct, frozen=True, omit_defaults=True, tag_field="to", tag="callback"):
    """A web address that a gateway calls. `headers` go with the request as they are.

    The store makes a job of it (`model.callback`).
    """

    url: str
    method: str = DEFAULT_METHOD
    headers: dict[str, str] = {}


class ScheduleWatcher(Struct, frozen=True, tag_field="to", tag="schedule"):
    """The schedule that submitted it. No submitter names one: the dispatcher does."""

    schedule: UUID


Watcher = ActorWatcher | CallbackWatcher | ScheduleWatcher
"""Who may watch a job or a group. On the wire, `to` says which variant it is."""
