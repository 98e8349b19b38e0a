"""Callbacks: the jobs that tell web addresses of the end of a job or a group.

A callback is an ordinary job of a built-in kind, outside any group, which workers of gateways run.
The store submits it in the transaction that tells the watchers. So retries, history, logs and `why`
are those of every job, and the job's success is the mark that the callback was delivered.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.job import Options, RetryPolicy

CALLBACK_KIND: Final = "longshore.callback"
CALLBACK_QUEUE: Final = "longshore.callbacks"


class Callback(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a callback's job gets: whom to call with what, and of whose end it tells.

    The job's row has no `key`. The store adds it to each attempt, so that lists never show it.
    """

    url: str
    method: str
    headers: dict[str, str] = {}
    body: str
    event: str
    subject: UUID
    subject_number: int | None = None
    is_group: bool = False
    round: int = 1
    key: bytes = b""
    """What the gateway signs with."""


class CallbackTerms(Struct, frozen=True, kw_only=True):
    """How callbacks are tried, and how large their bodies may be."""

    attempts: int = 20
    backoff_s: float = 5.0
    max_backoff_s: float = 3600.0
    timeout_s: float = 20.0
    max_bytes: int = 256 * 1024

    @property
    def options(self) -> Options:
        """The options of a callback's job."""
        retry = RetryPolicy(
            attempts=self.attempts, backoff_s=self.backoff_s, max_backoff_s=self.max_backoff_s
        )
        return Options(timeout_s=self.timeout_s, retry=retry)


USUAL_TERMS: Final = CallbackTerms()


class Subject(Struct, frozen=True):
    """What a callback says of a job or a group beside its end. `name` is a job's kind."""

    number: int
    name: str
