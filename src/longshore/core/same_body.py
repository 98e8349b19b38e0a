"""Whether a submission is the one that was stored under its id, however the two were written.

The store keeps a hash of a submission's body (`body_hash`), and sees by it that one id was sent
with two bodies. The bytes that are hashed leave out a field whose value *is* the default, and hold
one that only equals it; a whole number of seconds may be an int in them, or a float. So one
submission has several hashes: the SDK writes `options` always, other programs may leave them out.

A repeat nearly always comes as it came first, and one comparison tells. Only if that fails, the
other forms of the submission are hashed, too: there are at most 72. What is stored stays as it was,
so that older dispatchers beside newer ones recognise a repeat as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

from msgspec import structs

from longshore.core.lanes import body_hash, node_hash
from longshore.model.group import Node
from longshore.model.job import DEFAULT_QUEUE, Options, RetryPolicy, Submission

_DEFAULTS: Final = {field.name: field.default for field in structs.fields(Submission)}
_DEFAULT_OPTIONS: Final[Options] = _DEFAULTS["options"]
_DEFAULT_RETRY: Final[RetryPolicy] = _DEFAULT_OPTIONS.retry
_RETRY_NUMBERS: Final = ("backoff_s", "factor", "max_backoff_s", "jitter")

_Number = Callable[[float], float]


def is_body(job: Submission, body: int, stored: int) -> bool:
    """Whether the stored hash is of this job; `body` is the hash of it as it came."""
    return body == stored or any(body_hash(form) == stored for form in _forms(job))


def is_node(node: Node, body: int, stored: int) -> bool:
    """Whether the stored hash is of this node; `body` is the hash of it as it came."""
    return body == stored or any(
        node_hash(node, body_hash(form)) == stored for form in _forms(node.job)
    )


def _forms(job: Submission) -> Iterator[Submission]:
    """The ways in which this submission may have been written."""
    queues = [job.queue]
    if job.queue == DEFAULT_QUEUE:
        queues = [DEFAULT_QUEUE, _another(DEFAULT_QUEUE)]
    for number in (_float, _int):
        delay_s = None if job.delay_s is None else number(job.delay_s)
        for queue, options in product(queues, _option_forms(job.options, number)):
            yield structs.replace(job, queue=queue, delay_s=delay_s, options=options)


def _option_forms(options: Options, number: _Number) -> list[Options]:
    """Options as they may have been written: whole or in part, or left out."""
    times = {
        name: None if (seconds := getattr(options, name)) is None else number(seconds)
        for name in ("timeout_s", "expires_s")
    }
    retries = _retry_forms(options.retry, number)
    written = [structs.replace(options, **times, retry=retry) for retry in retries]
    return [_DEFAULT_OPTIONS, *written] if options == _DEFAULT_OPTIONS else written


def _retry_forms(retry: RetryPolicy, number: _Number) -> list[RetryPolicy]:
    choices = []
    for name in _RETRY_NUMBERS:
        value, default = getattr(retry, name), getattr(_DEFAULT_RETRY, name)
        left_out = [default] if value == default else []
        choices.append([*left_out, number(value)])
    forms = [RetryPolicy(retry.attempts, *numbers) for numbers in product(*choices)]
    return [_DEFAULT_RETRY, *forms] if retry == _DEFAULT_RETRY else forms


def _another(text: str) -> str:
    """An equal text that is not the same object: encoders write it, also where it is a default."""
    return text.encode().decode()


def _float(value: float) -> float:
    """The number as a float, which is another object than any default."""
    return float(value) + 0.0


def _int(value: float) -> float:
    """The number as an int, if it is whole."""
    return int(value) if float(value).is_integer() else _float(value)
