"""The limits of groups: every job of such a group counts for the key of the group.

Whatever stores jobs of a group (its submit, a job that adds others, a map, a client) asks here,
with the limit in the group's row. What tells one body from another does not know of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from longshore.core.group_limits import in_group
from longshore.core.key_limits import group_key
from longshore.model.limits import JobLimit
from longshore.store.rows import NodeItem

_packer: Final = msgspec.msgpack.Encoder()
_limit: Final = msgspec.msgpack.Decoder(JobLimit)


def pack_limit(limit: JobLimit | None) -> bytes | None:
    """The limit of a group as it is stored."""
    return None if limit is None else _packer.encode(limit)


def unpack_limit(data: bytes | None) -> JobLimit | None:
    """The limit of a group."""
    return None if data is None else _limit.decode(data)


def limited(items: Iterable[NodeItem], group: UUID, limit: JobLimit | None) -> list[NodeItem]:
    """The nodes as the group has them."""
    if limit is None:
        return list(items)
    return [_limited(item, group, limit) for item in items]


def _limited(item: NodeItem, group: UUID, limit: JobLimit) -> NodeItem:
    job = in_group(item.node.job, group, limit)
    return item._replace(node=msgspec.structs.replace(item.node, job=job))


def keys_of_runs(source: UUID, run: UUID) -> tuple[str, str]:
    """The key of a group, and that of its new run, which replaces it in the rows that are copied.

    Both are equally long. So they can be exchanged where they stand, within packed options too.
    """
    return group_key(source), group_key(run)
