"""Lanes: a job's queue, kind and target as one 64-bit number. A claim compares one column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import unpack
from typing import Final

from msgspec import msgpack

from longshore.core.resources import has, split
from longshore.core.tracing import untraced
from longshore.model.group import GATE, MAP, SCOPE, Node
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, Submission
from longshore.model.worker import Lane, WorkerInfo

_canonical = msgpack.Encoder(uuid_format="bytes", order="deterministic")


_nothing_hashed = blake2b(digest_size=8)


def _signed64(data: bytes) -> int:
    hashed = _nothing_hashed.copy()  # to make a new one takes longer
    hashed.update(data)
    return int.from_bytes(hashed.digest(), "big", signed=True)


@lru_cache(maxsize=16_384)
def lane_of(queue: str, kind: str, target: str) -> Lane:
    """The lane of a job. Every process computes the same number."""
    return Lane(_signed64("\0".join((queue, kind, target)).encode()), queue, kind, target)


MAP_LANE: Final = lane_of(DEFAULT_QUEUE, MAP, ANY_TARGET).hash
SCOPE_LANE: Final = lane_of(DEFAULT_QUEUE, SCOPE, ANY_TARGET).hash
GATE_LANE: Final = lane_of(DEFAULT_QUEUE, GATE, ANY_TARGET).hash
NOT_RUN_LANES: Final = frozenset({MAP_LANE, SCOPE_LANE, GATE_LANE})
"""The lanes of maps, sub-groups and gates, which no worker serves."""


def body_hash(job: Submission) -> int:
    """A number by which the store sees that one id was sent with two different bodies."""
    # A repeat may come from another span.
    return _signed64(_canonical.encode(untraced(job)))


def body_hashes(jobs: Sequence[Submission]) -> Sequence[int]:
    """The `body_hash` of each job. Of many together it takes two thirds of the time."""
    return _hashes([untraced(job) if job.options.traceparent else job for job in jobs])


def _hashes(values: Sequence[object]) -> Sequence[int]:
    encode, copy, digests = _canonical.encode, _nothing_hashed.copy, list[bytes]()
    for value in values:
        hashed = copy()
        hashed.update(encode(value))
        digests.append(hashed.digest())
    return unpack(f">{len(values)}q", b"".join(digests))


def node_hash(node: Node, body: int) -> int:
    """A number by which the store sees that one place of a group was sent with two nodes."""
    return _signed64(_canonical.encode(_node_body(node, sorted(set(node.after)), body)))


def node_hashes(
    nodes: Sequence[Node], parents: Sequence[Sequence[int]], bodies: Sequence[int]
) -> Sequence[int]:
    """The `node_hash` of each node; `parents` has what it depends on, in order, each once."""
    return _hashes(list(map(_node_body, nodes, parents, bodies)))


def _node_body(node: Node, parents: Sequence[int], body: int) -> tuple[object, ...]:
    own = (node.key, node.on, parents, body)
    return own if node.scope is None else (*own, node.scope)


def serves(worker: WorkerInfo, lane: Lane) -> bool:
    """Whether a worker can run the jobs of a lane."""
    target, shape = split(lane.target)
    return (
        lane.kind in worker.kinds
        and (not worker.queues or lane.queue in worker.queues)
        and target in (ANY_TARGET, worker.target)
        and has(worker.resources, shape)
    )
