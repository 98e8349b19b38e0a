"""Who may do what: rights of roles, and the reach of scopes.

A token only ever takes rights away: who asks without one has the rights of the connection, and
those are all rights. A request needs one right. A scope narrows the jobs to which a right reaches:
by queue and by kind, both if both are given. What is out of scope does not exist for its reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final

from msgspec import Struct, structs

from longshore.core.urls import HIDDEN
from longshore.errors import NotAllowed, NotAuthenticated
from longshore.model.access import Role, Scope
from longshore.model.actor import ActorTerms
from longshore.model.job import HistoryEntry, Job, JobFilter, Options, Submission
from longshore.model.program import FREE_KINDS
from longshore.model.watcher import ActorWatcher, CallbackWatcher, ScheduleWatcher, Watcher

TOKEN_PREFIX: Final = "ls_"
SECRET_CHARS: Final = 43
"""How many characters follow the prefix: 32 random bytes in base64."""
PREFIX_CHARS: Final = 9
"""How much of a token is shown in lists."""
MAX_TOKEN_NAME_CHARS: Final = 100
MAX_SCOPE_NAMES: Final = 100
"""How many queues, and how many kinds, a scope may name."""
LOCAL_NAME: Final = "local"
MAX_SUBJECT_CHARS: Final = 500


class Right(StrEnum):
    """What a request needs."""

    ASK = "ask"
    """To ask who one is, or to have a request passed on that needs a right of its own."""
    READ = "read"
    SUBMIT = "submit"
    """To submit jobs, and to change the course of those in reach."""
    WORK = "work"
    ADMIN = "admin"


RIGHTS: Final[dict[Role, frozenset[Right]]] = {
    Role.ADMIN: frozenset(Right),
    Role.SUBMIT: frozenset({Right.ASK, Right.READ, Right.SUBMIT}),
    Role.WORKER: frozenset({Right.ASK, Right.WORK}),
    Role.READ: frozenset({Right.ASK, Right.READ}),
}
"""What each role allows."""


class Asker(Struct, frozen=True):
    """Who asks: its name in the audit, its role and its scope."""

    name: str = LOCAL_NAME
    role: Role = Role.ADMIN
    scope: Scope = Scope()

    @property
    def by(self) -> str:
        """How the history of a job names it."""
        return "a client" if self.name == LOCAL_NAME else self.name


NAMELESS_HASH: Final = bytes(32)
"""Stands for no token: by it a gateway says that it asks for somebody who showed none."""
NAMELESS: Final = Asker("a client without a token")

LOCAL: Final = Asker()
"""A client of this machine that shows neither a key nor a token."""


def hash_of(token: str) -> bytes:
    """What stands for a token everywhere but with its holder."""
    return sha256(token.encode()).digest()


def is_token(text: str) -> bool:
    """Whether a text looks like a token. It says nothing about whether one exists."""
    secret = text.removeprefix(TOKEN_PREFIX)
    return text.startswith(TOKEN_PREFIX) and len(secret) == SECRET_CHARS and secret.isascii()


# rights


def check_right(asker: Asker, right: Right) -> None:
    """Raises `NotAllowed` unless the role of who asks has this right."""
    if right not in RIGHTS[asker.role]:
        able = ", ".join(role for role, rights in RIGHTS.items() if right in rights)
        raise NotAllowed(f"{asker.name} has the role {asker.role}, and this needs another: {able}")


def check_whole(asker: Asker, what: str) -> None:
    """Raises `NotAllowed` if who asks for something that concerns all jobs has a scope."""
    if not is_whole(asker.scope):
        raise NotAllowed(f"{asker.name} reaches some queues or kinds only; {what} concerns all")


def check_payloads(asker: Asker, what: str) -> None:
    """Raises `NotAllowed` if who asks for a payload may see none."""
    if not asker.scope.payloads:
        raise NotAllowed(f"{asker.name} sees no payloads, and {what} are such")


# reach


def is_whole(scope: Scope) -> bool:
    """Whether a scope reaches to every job."""
    return not scope.queues and not scope.kinds


def reaches_queue(scope: Scope, queue: str) -> bool:
    """Whether jobs of a queue may be in a scope."""
    return not scope.queues or queue in scope.queues


def reaches_kind(scope: Scope, kind: str) -> bool:
    """Whether jobs of a kind may be in a scope. Turns of an actor, `Type@1`, count as `Type`."""
    if not scope.kinds or kind in scope.kinds:
        return True
    type, _, version = kind.rpartition("@")
    return version.isdigit() and type in scope.kinds


def reaches(scope: Scope, queue: str, kind: str) -> bool:
    """Whether a job of this queue and kind is in a scope."""
    return reaches_queue(scope, queue) and reaches_kind(scope, kind)


def reaches_actors(scope: Scope, type: str) -> bool:
    """Whether actors of a type are in a scope: only kinds name them, queues do not."""
    return is_whole(scope) or type in scope.kinds


def check_submit(asker: Asker, queue: str, kind: str) -> None:
    """Raises `NotAllowed` if who asks may not submit such a job."""
    if not reaches(asker.scope, queue, kind):
        raise NotAllowed(f"{asker.name} may not submit '{kind}' into queue '{queue}'")
    if kind in FREE_KINDS:
        _check_chooses(asker, kind)


def _check_chooses(asker: Asker, kind: str) -> None:
    """Raises if who asks may not choose what a worker runs: that is to be the worker's user."""
    if asker is NAMELESS:
        raise NotAuthenticated(
            f"'{kind}' runs whatever it is told, so over HTTP it needs a token, here too: send the "
            "one that `longshore up --exec` writes to .longshore/token, or make one with "
            f"`longshore token create`: an admin's, or one with --kind {kind}"
        )
    if asker.role is not Role.ADMIN and kind not in asker.scope.kinds:
        raise NotAllowed(
            f"{asker.name} may not submit '{kind}', which runs whatever it is told; that needs the "
            f"role admin, or a token that names the kind: --kind {kind}"
        )


def check_named(asker: Asker) -> None:
    """Raises `NotAuthenticated` if who asks about tokens over HTTP shows none.

    Otherwise whoever lacks the token that a command needs would make one.
    """
    if asker is NAMELESS:
        raise NotAuthenticated(
            "over HTTP only the holder of a token makes and revokes tokens, here too: send an "
            "admin's, or run `longshore token create` or `longshore token revoke` on the machine "
            "of a dispatcher, without http:// in --connect"
        )


def check_types(asker: Asker, types: Iterable[str]) -> None:
    """Raises `NotAllowed` if actors of one of these types are out of reach."""
    for type in types:
        if not reaches_actors(asker.scope, type):
            raise NotAllowed(f"{asker.name} does not reach actors of type '{type}'")


def check_watchers(asker: Asker, watchers: Iterable[Watcher]) -> None:
    """Raises `NotAllowed` if an actor that is out of reach would hear of the end."""
    check_types(asker, (one.type for one in watchers if isinstance(one, ActorWatcher)))


def check_start(asker: Asker, type: str, terms: ActorTerms) -> None:
    """Raises `NotAllowed` if who asks may not start such an actor.

    Its terms say where its turns run, and which job hears of its commits: a scope holds for both.
    """
    check_types(asker, (type,))
    check_submit(asker, terms.queue, type)
    if (history := terms.history) is not None:
        check_submit(asker, history.queue, history.kind)
        check_watchers(asker, history.options.watchers)


def check_serve(asker: Asker, kinds: Iterable[str]) -> None:
    """Raises `NotAllowed` if who asks may not have a web worker run these kinds."""
    if asker.scope.queues:
        raise NotAllowed(f"{asker.name} reaches some queues only; a web worker takes jobs of all")
    for kind in kinds:
        if not reaches_kind(asker.scope, kind):
            raise NotAllowed(f"{asker.name} does not reach kind '{kind}'")


def narrowed(wanted: JobFilter, scope: Scope) -> JobFilter:
    """A filter that leaves out much of what is out of scope, where one queue or kind is in it."""
    queue, kind = wanted.queue, wanted.kind
    if queue is None and len(scope.queues) == 1:
        queue = scope.queues[0]
    # The kinds of an actor's turns begin with its type: no single kind stands for them.
    return structs.replace(wanted, queue=queue, kind=kind)


def submitted_by(asker: Asker, jobs: Sequence[Submission]) -> Sequence[Submission]:
    """The jobs as they are stored: they name who submitted them, if a key or a token says it."""
    if asker is LOCAL:
        return jobs
    named: list[Submission] = []
    last = last_named = Options()
    for job in jobs:
        # Neighbours mostly have the same options. These have no hash: headers are in them.
        if not named or job.options != last:
            last, last_named = job.options, structs.replace(job.options, by=asker.name)
        named.append(structs.replace(job, options=last_named))
    return named


# what is shown


_NIL: Final = b"\xc0"


def without_payloads(job: Job) -> Job:
    """A job as it is shown to who may see no payloads."""
    args = b"" if job.options.raw else _NIL
    return structs.replace(job, args=args, result=None)


def sees_headers(asker: Asker) -> bool:
    """Whether who asks is shown what the headers of callbacks hold: often it is a key."""
    return asker.scope.payloads and Right.SUBMIT in RIGHTS[asker.role]


def shown_watchers(watchers: tuple[Watcher, ...], *, payloads: bool) -> tuple[Watcher, ...]:
    """Watchers without what headers hold; and without `about`, which is a payload, if told so."""
    return tuple(_shown_watcher(one, payloads) for one in watchers)


def _shown_watcher(watcher: Watcher, payloads: bool) -> Watcher:
    match watcher:
        case CallbackWatcher():
            return structs.replace(watcher, headers=dict.fromkeys(watcher.headers, HIDDEN))
        case ActorWatcher():
            return watcher if payloads else structs.replace(watcher, about=b"")
        case ScheduleWatcher():
            return watcher


def with_submitter(job: Job) -> Job:
    """A job whose first history entry names who submitted it, if its dispatcher knew a name."""
    if not job.options.by or not job.history:
        return job
    first = job.history[0]
    named = HistoryEntry(first.state, first.at, job.options.by, first.info)
    return structs.replace(job, history=(named, *job.history[1:]))
