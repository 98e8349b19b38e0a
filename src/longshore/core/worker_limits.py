"""What a worker may say of itself. A dispatcher refuses what is past these bounds, and says why.

The dispatcher keeps, logs and shows what passes. So each text is short, and has no character that
ends a line or commands a terminal.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from longshore.core.actor_limits import check_history, check_listed_names
from longshore.core.crowd_limits import why_not_debounced
from longshore.core.fairness import needs_value, why_not_fair
from longshore.core.key_limits import BY_FUNCTION, why_no_key, why_not, with_some_values
from longshore.core.limits import (
    RESERVED_PREFIX,
    check_length,
    check_name,
    check_priority,
    check_retry,
    check_target,
)
from longshore.core.programs import MAX_FILESETS
from longshore.core.resources import checked, with_shape
from longshore.errors import InvalidInput
from longshore.model.group import NOT_RUN
from longshore.model.program import FREE_KINDS
from longshore.model.worker import KindInfo, KindTerms, Parameter, WorkerInfo

MAX_TEXT_CHARS: Final = 300
"""For a worker's name, its host, and its `process`."""
MAX_KINDS: Final = 5_000
MAX_PARAMETERS: Final = 500
MAX_TYPE_CHARS: Final = 1_000
MAX_SCHEMA_CHARS: Final = 100_000
MAX_QUEUES: Final = 1_000
MAX_SLOTS: Final = 10_000
MAX_HELD: Final = 2 * MAX_SLOTS
"""How many attempts one message may name as held, or as unacknowledged."""
MAX_REASON_CHARS: Final = 500
MAX_LEASE_S: Final = 24 * 3600.0
"""The longest lease that a worker may ask for."""


def check_worker(info: WorkerInfo) -> None:
    """Raises `InvalidInput` naming what a worker may not say of itself."""
    for what, text in (("name", info.name), ("host", info.host), ("process", info.process)):
        _check_text(f"the worker's {what}", text, MAX_TEXT_CHARS)
    for what, text in structs.asdict(info.machine).items():
        _check_text(f"the machine's {what}", text, MAX_TEXT_CHARS)
    if not 0 <= info.lease_s <= MAX_LEASE_S:
        raise InvalidInput(f"lease_s is {info.lease_s:g}; it may be 0 to {MAX_LEASE_S:g}")
    _check_pools(info.pools)
    _check_target(info.target)
    checked(info.resources)
    _check_count("queues", len(info.queues), MAX_QUEUES)
    for queue in info.queues:
        check_name("queue", queue)
        _check_reserved(info, "queue", queue)
    _check_count("kinds", len(info.kinds), MAX_KINDS)
    for kind, about in info.kinds.items():
        check_name("kind", kind)
        if kind in NOT_RUN:
            raise InvalidInput(f"it serves kind '{kind}', which no worker runs; leave it out")
        if kind not in FREE_KINDS:
            _check_reserved(info, "kind", kind)
        _check_kind(kind, about)
        if about.pool not in info.pools:
            raise InvalidInput(f"kind '{kind}' is of pool '{about.pool}', which is not in pools")


def _check_reserved(info: WorkerInfo, what: str, name: str) -> None:
    if name.startswith(RESERVED_PREFIX) and not info.gateway:
        raise InvalidInput(
            f"it serves {what} '{name}'; names that begin with '{RESERVED_PREFIX}' are for gateways"
        )


def _check_target(target: str) -> None:
    if target:
        check_name("target", target)


def _check_pools(pools: dict[str, int]) -> None:
    for pool, slots in pools.items():
        check_name("pool", pool)
        if not 0 <= slots <= MAX_SLOTS:
            raise InvalidInput(f"pool '{pool}' has {slots:,} slots; it may have 0 to {MAX_SLOTS:,}")
    _check_count("slots", sum(pools.values()), MAX_HELD)


def check_held(*lists: tuple[object, ...]) -> None:
    """Raises `InvalidInput` if a worker names more attempts than it can have."""
    for attempts in lists:
        _check_count("attempts", len(attempts), MAX_HELD)


def _check_kind(kind: str, about: KindInfo) -> None:
    _check_parameters(kind, about.parameters or ())
    messages = about.messages or {}
    _check_count(f"messages of kind '{kind}'", len(messages), MAX_PARAMETERS)
    for name, parameters in messages.items():
        _check_text(f"a message's name of kind '{kind}'", name, MAX_TEXT_CHARS)
        _check_parameters(kind, parameters or ())
    for what, filesets in (("inputs", about.inputs), ("outputs", about.outputs)):
        _check_count(f"{what} of kind '{kind}'", len(filesets), MAX_FILESETS)
        for fileset in filesets:
            _check_text(f"one of the {what} of kind '{kind}'", fileset, MAX_TYPE_CHARS)
    check_history(about.history)
    check_listed_names(f"kind '{kind}'", about.listed)
    check_name("queue", about.terms.queue)
    check_target(with_shape(about.terms.target, about.terms.resources), about.terms.resources)
    check_priority(about.terms.priority)
    check_retry(about.terms.retry)
    _check_keys(kind, about.terms)


def _check_keys(kind: str, terms: KindTerms) -> None:
    why = why_not(with_some_values(terms.limits))
    if terms.debounce is not None:
        why = why or why_no_key(_completed(terms.debounce.key)) or why_not_debounced(terms.debounce)
    if terms.fair_by:
        why = why or why_not_fair(_completed(terms.fair_by))
    if why:
        raise InvalidInput(f"kind '{kind}': {why}")


def _completed(key: str) -> str:
    """The key as it can be checked before a job completes it."""
    if key == BY_FUNCTION:
        return "function=any"
    return f"{key}=any" if needs_value(key) else key


def _check_parameters(kind: str, parameters: tuple[Parameter, ...]) -> None:
    _check_count(f"parameters of kind '{kind}'", len(parameters), MAX_PARAMETERS)
    for one in parameters:
        _check_text(f"a parameter's name of kind '{kind}'", one.name, MAX_TEXT_CHARS)
        _check_text(f"the type of '{one.name}' of kind '{kind}'", one.type, MAX_TYPE_CHARS)
        check_length(f"the schema of '{one.name}' of kind '{kind}'", one.schema, MAX_SCHEMA_CHARS)


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidInput(f"{count:,} {what} are more than the {most:,} that a worker may have")


def _check_text(what: str, text: str, most: int) -> None:
    check_length(what, text, most)
    if not text.isprintable():
        raise InvalidInput(f"{what} is {text!r}: it has a character that cannot be printed")
