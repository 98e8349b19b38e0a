"""What a group may hold. The client checks all of it early, the dispatcher checks each part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.core.crowd_limits import IN_GROUP, check_no_crowd
from longshore.core.key_limits import OF_GROUP, group_key, why_not, with_some_values
from longshore.core.limits import (
    MAX_NAME_CHARS,
    check_labels,
    check_length,
    check_text,
    check_watchers,
)
from longshore.errors import InvalidInput, LongshoreError, TooLarge, from_code
from longshore.model.group import GATE, MAP, NOT_RUN, Condition, GroupHead, GroupPart, Node
from longshore.model.job import Options, Submission
from longshore.model.limits import Full, JobLimit
from longshore.model.reports import OutboxNode

MAX_PART_NODES: Final = 5_000
"""How many jobs of a group one request may bring. A larger group comes in several parts."""
MAX_KEY_CHARS: Final = 200
MAX_MAP_KEY_CHARS: Final = MAX_KEY_CHARS - len("/999999999")
"""The jobs of a map have its key, a `/` and a number."""
MAX_NODES_LISTED: Final = 1_000
"""How many jobs of a group one request may list."""

MAX_PLACE: Final = 2**31 - 1
"""No group has a job at a place after this one."""

MAX_ADDED_JOBS: Final = 5_000
"""How many jobs one attempt, or one request of a client, may add. A map may have more elements."""

_KEY: Final = re.compile(r"[\w.:@+-]+(/[\w.:@+-]+)*")


def check_key(key: object, kind: str = "") -> None:
    """Raises `InvalidInput` unless this can be the key of a job of this kind in a group."""
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"the key is {key!r}; it must be text, and not empty")
    check_length("the key", key, MAX_KEY_CHARS)
    if kind == MAP and len(key) > MAX_MAP_KEY_CHARS:
        raise InvalidInput(
            f"the key has {len(key):,} characters; a map may have {MAX_MAP_KEY_CHARS:,}, because "
            f"its jobs are called KEY/0 and so on, in {MAX_KEY_CHARS:,} at most"
        )
    if not _KEY.fullmatch(key):
        raise InvalidInput(
            f"the key {key!r} has a character that keys may not have; letters, digits and "
            "_ . : @ + - are allowed, and '/' between the names of sub-groups"
        )


def check_head(head: GroupHead, max_jobs: int) -> None:
    """Raises if a group has a bad name or bad labels, or too many jobs."""
    check_text("the group's name", head.name, MAX_NAME_CHARS)
    check_labels(head.labels)
    check_watchers(head.watchers)
    _check_limit(head.limit)
    if head.jobs < 0:
        raise InvalidInput(f"a group of {head.jobs} jobs cannot be; give 0 or more")
    if head.jobs > max_jobs:
        raise TooLarge(
            f"it has {head.jobs:,} jobs, and max_group_jobs is {max_jobs:,}: make several groups, "
            "or raise max_group_jobs"
        )


def _check_limit(limit: JobLimit | None) -> None:
    if limit is None:
        return
    if limit.key != OF_GROUP:
        raise InvalidInput(
            f"the limit of a group has the key '{limit.key:.50}'; leave it out: it counts the jobs "
            "of the group"
        )
    if limit.full is not Full.WAIT:
        raise InvalidInput(
            f"the limit of a group says full='{limit.full}', which {IN_GROUP}; leave out full"
        )
    if why := why_not(with_some_values([limit])):
        raise InvalidInput(why)


def in_group(job: Submission, group: UUID, limit: JobLimit) -> Submission:
    """The job as a group with this limit has it: it counts for the group's key, too."""
    if job.kind in NOT_RUN:
        return job
    own = structs.replace(limit, key=group_key(group))
    limits = (*(one for one in job.options.limits if one.key != own.key), own)
    return structs.replace(job, options=structs.replace(job.options, limits=limits))


def out_of_group(job: Submission, group: UUID) -> Submission:
    """The job without the key of this group."""
    limits = tuple(one for one in job.options.limits if one.key != group_key(group))
    return structs.replace(job, options=structs.replace(job.options, limits=limits))


def check_part(part: GroupPart, edges: int, max_jobs: int, max_edges: int) -> None:
    """Raises, naming the group and the key, if a part of a group breaks a limit.

    `edges` is how many dependencies the group has in all. Whether its jobs themselves are valid is
    not checked here.
    """
    with naming(part.head):
        check_head(part.head, max_jobs)
        _check_edges(part, edges, max_edges)
        _check_bounds(part)
    keys: set[str] = set()
    ids = {part.head.id.int}
    sound: Submission | None = None
    for place, node in enumerate(part.nodes, part.first):
        try:
            check_key(node.key, node.job.kind)
            if sound is None or not node.job.is_like(sound):
                _check_job(node.job)
                sound = node.job if node.job.kind not in NOT_RUN else None
            _check_node(node, place)
            if node.key in keys:
                raise InvalidInput("another job of the group has this key; rename one of them")
            if node.job.id.int in ids:
                raise InvalidInput(f"its id {node.job.id} is another's; give it one of its own")
        except LongshoreError as error:
            raise named(part.head, node.key, error) from None
        keys.add(node.key)
        ids.add(node.job.id.int)


def _check_bounds(part: GroupPart) -> None:
    head, end = part.head, part.first + len(part.nodes)
    if not 0 <= part.first <= end <= head.jobs or (head.jobs and not part.nodes):
        raise InvalidInput(
            f"a part with {len(part.nodes):,} jobs from place {part.first:,} on does not belong to "
            f"{head.jobs:,} jobs; send places 0 to {head.jobs - 1:,}, each once"
        )


def _check_edges(part: GroupPart, edges: int, max_edges: int) -> None:
    here = sum(len(node.after) for node in part.nodes)
    if here > edges:
        raise InvalidInput(
            f"a part has {here:,} dependencies, and its group is to have {edges:,} in all; count "
            "them all in `edges`"
        )
    if edges > max_edges:
        raise TooLarge(
            f"its jobs have {edges:,} dependencies, and max_group_edges is {max_edges:,}: let many "
            "jobs depend on one that depends on many, or raise max_group_edges"
        )


def _check_job(job: Submission) -> None:
    """Checks what the job of a node has in common with others that it `is_like`.

    Of a job that no worker runs, it checks all.
    """
    check_not_run(job)
    check_unwatched(job)


def _check_node(node: Node, place: int) -> None:
    if node.scope is not None and not place < node.scope <= MAX_PLACE:
        raise InvalidInput(
            f"its scope is {node.scope:,}, which does not lie behind its own place, {place:,}; "
            "send the node of a sub-group after what is in it"
        )
    check_condition(node.on, bool(node.after))
    check_start(node.job)
    after = node.after
    if len(after) > 1 and len(set(after)) < len(after):
        raise InvalidInput("its `after` names a job twice; name each once")
    if after and not 0 <= min(after) <= max(after) < place:
        raise InvalidInput(
            f"its `after` names a place that does not lie before its own, {place:,}; send the jobs "
            "in an order in which each comes after those it depends on"
        )


def check_not_run(job: Submission) -> None:
    """Raises `InvalidInput` if a node that no worker runs asks for something of a worker."""
    if job.kind not in NOT_RUN:
        return
    plain = Submission(job.id, job.kind, job.args, delay_s=job.delay_s)
    options = Options(
        references=job.options.references,
        labels=job.options.labels,
        expires_s=job.options.expires_s if job.kind == GATE else None,
    )
    if job != structs.replace(plain, priority=job.priority, options=options):
        raise InvalidInput(
            f"no worker runs a '{job.kind}', so it has no queue, target, retries and the like"
        )


def check_growth(nodes: Sequence[OutboxNode]) -> None:
    """Raises if jobs that an attempt adds to its group break a limit, naming the key."""
    if len(nodes) > MAX_ADDED_JOBS:
        raise TooLarge(
            f"it adds {len(nodes):,} jobs, and one attempt may add {MAX_ADDED_JOBS:,}; use a map, "
            "or let added jobs add the rest"
        )
    keys: set[str] = set()
    for place, node in enumerate(nodes):
        _check_added(node, place)
        if node.key in keys:
            raise InvalidInput(f"it adds two jobs with the key '{node.key}'; rename one of them")
        keys.add(node.key)


def _check_added(node: OutboxNode, place: int) -> None:
    check_added_key(node.key)
    check_not_run(node.job)
    check_condition(node.on, bool(node.after))
    check_start(node.job)
    check_unwatched(node.job)
    if any(not 0 <= at < place for at in node.after):
        raise InvalidInput(f"the job '{node.key}' that it adds depends on one that it adds later")


def check_added_key(key: object) -> None:
    """Raises `InvalidInput` unless a job that another adds can have this key below that one's."""
    check_key(key)
    if "/" in str(key):
        raise InvalidInput(f"the key '{key}' of a job that another adds cannot have a '/'")


def condition_of(on: str) -> Condition:
    """The condition of this name; raises `InvalidInput` if there is none."""
    try:
        return Condition(on)
    except ValueError:
        words = ", ".join(f"'{one.value}'" for one in Condition)
        raise InvalidInput(f"on is {on!r}; it must be one of {words}") from None


def check_condition(on: Condition, has_after: bool) -> None:
    """Raises `InvalidInput` if a job has a condition and depends on nothing."""
    if on is not Condition.SUCCEEDED and not has_after:
        raise InvalidInput(
            f"on is '{on.value}', but it depends on nothing; add `after`, or leave out `on`"
        )


def check_unwatched(job: Submission) -> None:
    """Raises `InvalidInput` if a job of a group has watchers, or would end others by its submit."""
    check_no_crowd(job, IN_GROUP)
    if job.options.watchers:
        raise InvalidInput(
            "a job of a group has no callback and no other watchers; give them to the group"
        )


def check_start(job: Submission) -> None:
    """Raises `InvalidInput` if a job of a group is to start at a time of the clock."""
    if job.run_at is not None:
        raise InvalidInput(
            "run_at cannot be kept in a group, where a job starts when those before it ended; give "
            "delay_s, which counts from then"
        )


def called(head: GroupHead) -> str:
    """A group, as messages name it."""
    return f"group '{head.name!s:.{MAX_NAME_CHARS}}'"


class _Naming:
    """Names a group in what is raised. A generator would cost ten times as much for each node."""

    __slots__ = ("_head", "_key")

    def __init__(self, head: GroupHead, key: object) -> None:
        self._head = head
        self._key = key

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, LongshoreError):
            raise named(self._head, self._key, error) from None


def named(head: GroupHead, key: object, error: LongshoreError) -> LongshoreError:
    """The error, naming the group, and the job with this key, if there is one."""
    job = "" if key is None else f", job '{key!s:.{MAX_KEY_CHARS}}'"
    return from_code(error.code, f"{called(head)}{job}: {error}")


def naming(head: GroupHead, key: object = None) -> _Naming:
    """What is raised inside names the group, and the job with this key, if one is given."""
    return _Naming(head, key)
