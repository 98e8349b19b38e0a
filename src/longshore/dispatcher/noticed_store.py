"""A store that says when it was changed, so that those who show what is in it look again.

Every verb of the port is in one of three tables. What duties do again and again counts only if it
did something: an idle dispatcher must change nothing that people see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, TypeVar, cast

from msgspec import Struct, structs

from longshore.dispatcher.changes import Changes
from longshore.errors import StoreUnavailable
from longshore.model.batch import BatchResult
from longshore.model.limits import LimitsOpened
from longshore.model.retention import GroupsPruned, Pruned
from longshore.model.upkeep import Promoted
from longshore.ports import Store

T = TypeVar("T")

UNSEEN: Final = frozenset(
    {"open", "close", "migrate", "is_serial", "audited", "watch", "tell_others"}
    # reads
    | {"actor", "actors", "audit", "blob_generations", "bulk", "bulks", "callback_secret"}
    | {"cancelling", "checkpoint", "depths", "dispatchers", "doomed_blobs", "draining"}
    | {"due_schedules", "ended", "explain", "fair_place", "fileset_version", "fileset_versions"}
    | {"filesets", "fire_of", "fires", "fires_between", "group", "group_lanes", "group_progress"}
    | {"groups", "input_version", "is_sweeping", "job", "jobs", "lanes", "limit_key", "limit_keys"}
    | {
        "limit_rules",
        "log_parts",
        "logs",
        "mail",
        "nodes",
        "nodes_near",
        "old_logs",
        "overdue",
        "peaks",
    }
    | {"pending_fires", "placed", "queues", "replies", "run_times", "running_bulks", "schedule"}
    | {"schedules", "token", "tokens", "turns", "undelivered_sends", "unused_bytes"}
    | {"version_of_job", "versions_of_node", "web_attendance", "web_workers", "workers"}
    # leases, figures and files that are on their way
    | {"add_queue_waits", "beat", "bind_folder", "note_peaks", "note_runs", "note_stored"}
    | {"note_use", "pin", "renew", "tokens_used"}
)
"""Verbs that change nothing that people see, or what they see soon enough."""

DUTIES: Final = frozenset(
    {"adopt_web_workers", "advance_bulk", "cancel_abandoned", "deliver_sends", "doom_blobs"}
    | {"drop_archived", "examine_group", "expire", "forget_audit", "forget_blobs"}
    | {"forget_lanes", "forget_manifests", "forget_workers", "note_archived", "open_limits"}
    | {"promote", "prune", "prune_groups", "pump", "record_fires", "settle", "sweep"}
    | {"tell_watchers", "tend_actors"}
)
"""Verbs that are called again and again: only what they answer says whether they did something."""

CHANGES: Final = frozenset(
    {"add_to_group", "attend", "cancel", "cancel_group", "create_token", "edit_actor"}
    | {"fires_submitted", "forget_dispatcher", "harvest", "log", "note_web_workers", "open_gate"}
    | {"pause_actor", "pause_group", "pause_schedule", "publish", "put_bulk", "put_schedule"}
    | {"register_web_worker", "remove_limit", "remove_schedule", "remove_versions"}
    | {"rerun_group", "resign_web_worker", "retire", "retry", "retry_group", "revoke_token"}
    | {"save_checkpoint", "seal", "set_draining", "set_limit", "set_paused", "sort_mail"}
    | {"sort_undelivered", "start_actors", "stop_actor", "stop_bulk", "submit_group"}
)
"""Verbs that are called to change something that people see."""


def noticed(store: Store, changes: Changes) -> Store:
    """The same store. What it commits is told to `changes`, and to other dispatchers."""
    return cast(Store, _Noticed(store, changes))


class _Noticed:
    """Stands in for a store. What changes nothing is handed through as it is."""

    def __init__(self, store: Store, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def __getattr__(self, name: str) -> object:
        found: Any = getattr(self._store, name)
        if name == "audited":
            found = self._audited
        elif name in CHANGES or name in DUTIES:
            found = self._verb(found, is_duty=name in DUTIES)
        elif name not in UNSEEN:
            return found  # what is no verb may be another thing tomorrow
        # Kept as an attribute: the next call does not come here.
        self.__dict__[name] = found
        return found

    def _audited(self, entry: Any) -> Store:
        return noticed(self._store.audited(entry), self._changes)

    def _verb(self, verb: Callable[..., Any], *, is_duty: bool) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            answer = verb(*args, **named)
            return self._heard(answer, is_duty) if isawaitable(answer) else answer

        return call

    async def _heard(self, answer: Awaitable[T], is_duty: bool) -> T:
        try:
            found = await answer
        except StoreUnavailable:
            self._tell()  # nobody knows whether it was committed
            raise
        if not is_duty or did_something(found):
            self._tell()
        return found

    def _tell(self) -> None:
        self._changes.changed()
        self._store.tell_others()


def did_something(answer: object) -> bool:
    """Whether the answer to a duty's verb says that something has changed."""
    match answer:
        case BatchResult():
            done = (answer.finished, answer.submitted, answer.claimed, answer.ended, answer.sent)
            return any((*done, answer.dependents, answer.turns, answer.stopping))
        case Promoted():
            return answer.count > 0
        case LimitsOpened():
            return bool(answer.ready)
        case Pruned():
            return bool(answer.removed) or answer.groups > 0
        case GroupsPruned():
            return answer.groups > 0
        case list() | tuple():
            return any(answer)
        case Struct():
            return any(structs.astuple(answer))
        case _:
            return bool(answer)
