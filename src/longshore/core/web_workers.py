"""Decisions about web workers: what may register, who attends whom, how long a lease lasts.

Theory of the lease. A service counts its lease from when it sent an answer, and its gateway tells
it with the next health check that the answer counted. The gateway frees the jobs of a service that
stopped answering no sooner than that lease after the last answer came. An answer is sent before it
comes. So a service that heeds its lease has stopped its jobs by then. The lease also outlasts the
loss of a gateway and the adoption by another (`lease_s` and `adoption_s` more), so that jobs go on
meanwhile. A gateway may be lost just before it tells the service that its last answer but one
counted: so the lease is two intervals longer than that.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from longshore.core.addresses import is_host
from longshore.core.limits import RESERVED_PREFIX, check_length, check_name
from longshore.core.turns import is_turn_kind
from longshore.core.worker_limits import MAX_KINDS, MAX_SLOTS, MAX_TEXT_CHARS
from longshore.errors import InvalidInput
from longshore.model.group import NOT_RUN
from longshore.model.web_worker import WebRegistration

MAX_PORT: Final = 65_535
REPLACED: Final = "it was registered anew"
"""Why a service has ended at whose address another one has registered."""
KEPT_ENDED: Final = 1_000
"""Registrations that ended are kept while fewer have been made since."""


def lease_of(ping_interval_s: float, max_retries: int, adopted_s: float) -> float:
    """The lease of a web worker, in its READY and its row.

    If its gateway is lost, another one attends it after `adopted_s` at the latest.
    """
    own_s = ping_interval_s * (max_retries + 1)
    return max(own_s, promised_of(ping_interval_s, max_retries, adopted_s))


def promised_of(ping_interval_s: float, max_retries: int, adopted_s: float) -> float:
    """The lease that the service itself is told: its jobs are not freed before that."""
    return max(ping_interval_s * max_retries, adopted_s + 2 * ping_interval_s)


def share(services: int, gateways: int, mine: int) -> int:
    """How many more services a gateway should take."""
    return max(0, ceil(services / max(gateways, 1)) - mine)


def check_registration(said: WebRegistration) -> None:
    """Raises `InvalidInput` naming what a service may not say of itself."""
    for what, text in (("hostname", said.host), ("instance", said.instance)):
        check_length(what, text, MAX_TEXT_CHARS)
        if not text.isprintable() or " " in text:
            raise InvalidInput(f"{what} is {text!r}: use printable characters without spaces")
    if not said.host or "/" in said.host or "@" in said.host:
        raise InvalidInput(f"hostname is {said.host!r}: give a name or an IP address, and no more")
    if not is_host(said.host):
        raise InvalidInput(
            f"hostname is {said.host!r}: give a name in ASCII, whose parts with xn-- are IDNA, or "
            "an IP address"
        )
    if not 1 <= said.port <= MAX_PORT:
        raise InvalidInput(f"port is {said.port}; it may be 1 to {MAX_PORT:,}")
    if not 1 <= said.max_jobs <= MAX_SLOTS:
        raise InvalidInput(f"maxJobs is {said.max_jobs:,}; it may be 1 to {MAX_SLOTS:,}")
    if said.target:
        check_name("target", said.target)
    if not 1 <= len(said.kinds) <= MAX_KINDS:
        raise InvalidInput(
            f"handlers names {len(said.kinds):,} kinds; it may name 1 to {MAX_KINDS:,}"
        )
    for kind in said.kinds:
        check_name("kind", kind)
        if kind in NOT_RUN or kind.startswith(RESERVED_PREFIX):
            raise InvalidInput(f"handlers has '{kind}', which no web worker runs; leave it out")
        if is_turn_kind(kind):
            raise InvalidInput(
                f"handlers has '{kind}', a version of an actor, which no web worker runs; use a "
                "kind without '@'"
            )


def why_refused(known: WebRegistration, said: WebRegistration) -> str:
    """Why a service may not take the place of another at its address; empty if it may."""
    if known.principal == said.principal:
        return ""
    return (
        f"{said.host}:{said.port} is registered by another principal; have that one resign, or "
        "listen on another port"
    )


def is_repeat(known: WebRegistration, said: WebRegistration) -> bool:
    """Whether a registration says again what is known, after an answer that got lost."""
    return bool(said.instance) and known.instance == said.instance


def blamed_limit(
    known: WebRegistration, said: WebRegistration, crash_limit: int | None
) -> int | None:
    """The crash limit for the jobs of a service that another registration replaces.

    None if they are not to blame. Another instance at its address means that it died. Without
    instances nobody can tell that from a repeat after an answer that got lost.
    """
    return crash_limit if known.instance and said.instance else None


def too_many(most: int) -> str:
    """Why one more registration is refused."""
    return f"there are max_web_workers ({most:,}) web workers; resign some, or raise the limit"
