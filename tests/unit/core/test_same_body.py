"""One submission, written in any way, is one body."""

from __future__ import annotations

from itertools import product
from typing import Any
from uuid import UUID

import pytest
from msgspec import msgpack, structs

from longshore.core.lanes import body_hash, node_hash
from longshore.core.same_body import is_body, is_node
from longshore.model.group import Condition, Node
from longshore.model.job import Options, RetryPolicy, Submission

ID = UUID(int=7)
_decoder = msgpack.Decoder(Submission)


def sent(**fields: Any) -> Submission:
    """A submission as a dispatcher decodes it, of what some program wrote."""
    wire = {"id": str(ID), "kind": "k", "args": b"\x80", **fields}
    return _decoder.decode(msgpack.encode(wire))


def here(**fields: Any) -> Submission:
    """A submission that was made in this process."""
    return Submission(ID, "k", b"\x80", **fields)


PLAIN = [
    here(),
    here(options=Options(retry=RetryPolicy())),
    here(options=Options(retry=RetryPolicy(backoff_s=1, factor=2))),
    sent(),
    sent(queue="default", target="", priority=0, unique_key=None, options={}),
    sent(options={"retry": {}}),
    sent(options={"labels": [], "raw": False, "retry": {"attempts": 1}}),
    sent(options={"retry": {"backoff_s": 1, "jitter": 0.2}}),
    sent(queue="default", options={"retry": {"max_backoff_s": 3600.0, "factor": 2.0}}),
]
TIMED = [
    here(delay_s=5, options=Options(timeout_s=30, retry=RetryPolicy(4, backoff_s=2))),
    here(delay_s=5.0, options=Options(timeout_s=30.0, retry=RetryPolicy(4, 2.0, jitter=0.2))),
    sent(delay_s=5, options={"timeout_s": 30, "retry": {"attempts": 4, "backoff_s": 2}}),
    sent(
        queue="default",
        delay_s=5.0,
        options={"timeout_s": 30.0, "retry": {"attempts": 4, "backoff_s": 2.0, "factor": 2}},
    ),
]


@pytest.mark.parametrize("alike", [PLAIN, TIMED], ids=["plain", "timed"])
def test_equal_submissions_are_one_body_however_they_were_written(alike: list[Submission]) -> None:
    for one, other in product(alike, alike):
        assert one == other
        assert is_body(one, body_hash(one), body_hash(other)), (one, other)


def test_equal_nodes_are_one_however_they_were_written() -> None:
    nodes = [Node("a", job, (1, 2), Condition.ENDED, 3) for job in PLAIN]
    hashes = [node_hash(node, body_hash(node.job)) for node in nodes]
    for (node, own), stored in product(zip(nodes, hashes, strict=True), hashes):
        assert is_node(node, own, stored)
    other = structs.replace(nodes[0], key="b")
    own = node_hash(other, body_hash(other.job))
    assert not any(is_node(other, own, stored) for stored in hashes)


DIFFERENT = [
    *(here(), here(queue="slow"), here(target="t"), here(priority=1), here(unique_key="k")),
    *(here(delay_s=1.0), here(delay_s=float("inf")), here(options=Options(timeout_s=1.0))),
    *(here(options=Options(expires_s=1.0)), here(options=Options(labels=("x",)))),
    *(
        here(options=Options(retry=retry))
        for retry in (
            RetryPolicy(2),
            RetryPolicy(backoff_s=2.0),
            RetryPolicy(factor=1.0),
            RetryPolicy(max_backoff_s=1.0),
            RetryPolicy(jitter=0.0),
        )
    ),
    Submission(ID, "other", b"\x80"),
    Submission(ID, "k", b"\x81\x01\x01"),
    Submission(UUID(int=8), "k", b"\x80"),
]


def test_submissions_that_differ_are_never_one_body() -> None:
    for one, other in product(DIFFERENT, DIFFERENT):
        assert is_body(one, body_hash(one), body_hash(other)) == (one is other)
