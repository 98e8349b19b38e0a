"""Batches of jobs with an `Idempotency-Key`: one job of each, the guard, stands for the batch.

The id of the guard follows from the key alone, and its options hold a fingerprint of the whole
batch. So the same key with any other batch finds the guard with another body, and nothing else of
that request has been submitted yet. The ids of the other jobs follow from the key and the
fingerprint: they never meet those of another batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import UNSET, structs

from longshore.gateway.models import NewActorBody, NewJob
from longshore.model.job import Submission

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def fingerprint(body: Sequence[NewJob] | NewActorBody) -> str:
    """The same for each repeat of a request, however its JSON is written."""
    return blake2b(_encode(body), digest_size=16).hexdigest()


def guard_of(jobs: Sequence[NewJob]) -> int | None:
    """The place of the job that stands for a batch; None if all jobs have ids of their own.

    One with a unique key may not be stored, so another is better.
    """
    ours = [place for place, job in enumerate(jobs) if job.id is UNSET]
    free = [place for place in ours if jobs[place].unique_key is UNSET]
    return next(iter(free or ours), None)


def of_batch(job: Submission, batch: str) -> Submission:
    """A job that stands for a batch; unchanged if there is none."""
    if not batch:
        return job
    return structs.replace(job, options=structs.replace(job.options, batch=batch))
