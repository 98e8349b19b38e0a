"""Every setting of every process: what there is, what it is unless it is given, what must hold."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from msgspec import Struct, field

from longshore.core.limits import BATCH_BYTES
from longshore.errors import ConfigError

PREFIX: Final = "LONGSHORE_"
DEFAULT_STORE: Final = "sqlite:///.longshore/longshore.db"
BACKEND_PORT: Final = 7701
FRONTEND_PORT: Final = 7702
# What `on_worker_lost` is run with: a command of ours inside it is not to take them for settings.
LOST_VARIABLES: Final = tuple(
    f"{PREFIX}WORKER_{word}" for word in ("ID", "NAME", "HOST", "REASON", "SESSION")
)


class DispatcherSettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of a dispatcher. Tests use short ones."""

    lease_s: float = 15.0
    """A worker that was not heard of for so long is lost, and its jobs are given to others."""

    ping_s: float = 1.0
    """How often a worker says that it lives; in a large fleet less often, see below."""

    max_pings_per_s: int = 300
    """So many PINGs a dispatcher wants at most: with more workers each says it less often."""

    renew_s: float = 1.5
    """How often a dispatcher says in the store that it lives."""

    dispatcher_lease_s: float = 5.0
    """How long after a renewal was sent a dispatcher may still grant leases."""

    takeover_margin_s: float = 7.0
    """How long beyond `lease_s` a silent dispatcher's workers are left alone by the others.

    Not less than `dispatcher_lease_s`: so long after its last renewal it may have granted a lease.
    """

    poll_s: float = 2.0
    """How often the store is asked for work that no hint told of."""

    promote_s: float = 1.0
    """How often, at the least, delayed jobs are looked at."""

    cancel_poll_s: float = 0.5
    """How often cancels and drains made through other dispatchers are looked for."""

    heartbeat_s: float = 10.0
    """How often it is written down which workers were heard of, and how busy they are."""

    cancel_grace_s: float = 30.0
    """How long a cancelled job's worker has to stop it before it counts as cancelled anyway."""

    expire_s: float = 5.0
    """How often jobs past their timeout, whose worker did not stop them, are looked for."""

    timeout_margin_s: float = 10.0
    """How long after its timeout a job is ended that its worker did not stop."""

    sweep_s: float = 5.0
    """How often jobs owned by no live worker are looked for."""

    keep_succeeded_s: float = 7 * 86_400.0
    """How long after its end a job that succeeded is kept; 0 for ever."""

    keep_failed_s: float = 30 * 86_400.0
    """How long after its end any other job is kept; 0 for ever."""

    keep_most: int = 1_000_000
    """The most ended jobs of each state that are kept, the newest; 0 is no bound."""

    keep_workers_s: float = 7 * 86_400.0
    """How long after its end a worker is remembered; 0 for ever."""

    prune_s: float = 60.0
    """How often jobs and workers are looked for that are kept no longer."""

    plain_expire_s: float = 3.0
    """An idle worker of the plain dialogue that was not heard of for so long is removed."""

    plain_probe_s: float = 5.0
    """How often it is looked whether a busy worker of the plain dialogue is still connected."""

    on_worker_lost: str = ""
    """What to run when a worker is lost: a command line, or a URL to post to."""

    on_worker_lost_secret: str = ""
    """What a post to that URL is signed with."""

    crash_limit: int = 3
    """A job whose process died so often is failed as poisonous."""

    max_batch: int = 1_000
    """The most submits, finishes or claims in one transaction."""

    max_batch_bytes: int = BATCH_BYTES
    """The most bytes of arguments or results in one transaction, but for its last item."""

    overlap_from: int = 250
    """So many submits and finishes, queued behind a transaction, are worth a second beside it.

    Not on SQLite, where transactions come one after the other anyway.
    """

    slot_wait_s: float = 0.025
    """How long a submit waits for a worker's slot while none comes free, before it is queued."""

    max_slot_wait_s: float = 0.5
    """How long submits wait while slots come free one by one, before they are queued."""

    max_value_bytes: int = 1024 * 1024
    """The largest arguments or result of a job."""

    max_unsent_bytes: int = 64 * 1024 * 1024
    """What is held for a peer that does not read; past it, answers to it are dropped."""

    max_queued_submits: int = 200_000
    """Submits that wait for the store; past it clients are told to try again."""

    max_requests: int = 10_000
    """Requests under way, apart from WAITs; past it clients are told to try again."""

    max_peer_requests: int = 5_000
    """Requests under way of one connection, apart from WAITs."""

    max_waited_jobs: int = 1_000_000
    """Jobs that clients wait for; past it WAITs are told to try again, and nothing else is."""

    max_peer_waited_jobs: int = 100_000
    """Jobs that one connection waits for. A WAIT counts for at least 100, here and in all."""

    max_queued_bytes: int = 256 * 1024 * 1024
    """The bytes of arguments of those submits; past it clients are told to try again."""

    max_plain_requests: int = 10_000
    """Jobs of plain clients that have not ended; past it plain clients are told to try again."""

    max_lanes: int = 10_000
    """How many different (queue, kind, target) there may be at once; more if workers serve them."""

    max_client_lanes: int = 1_000
    """How many of those that no worker serves one client may add."""

    max_wait_s: float = 30.0
    """The longest a dispatcher lets one waiting request wait before it answers with nothing."""

    def __post_init__(self) -> None:
        """Refuses leases under which two workers could run one job, or nobody could run any."""
        own_s, margin_s = self.dispatcher_lease_s, self.takeover_margin_s
        if margin_s < own_s:
            raise ConfigError(
                f"takeover_margin_s is {margin_s:g} and dispatcher_lease_s {own_s:g}: the workers "
                "of a silent dispatcher could still run jobs that others give away already; "
                f"set takeover_margin_s to {own_s:g} or more"
            )
        if self.renew_s >= own_s:
            raise ConfigError(
                f"renew_s is {self.renew_s:g} and dispatcher_lease_s {own_s:g}: a dispatcher's own "
                "lease would end before it is renewed, and its workers would stop their jobs; "
                "set renew_s lower, to a third of dispatcher_lease_s or so"
            )


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of a worker. Tests use short ones."""

    slots: int = 100
    """How many `async def` jobs run at once."""

    processes: int = 0
    """How many jobs run at once that each have a process of their own; 0 is the CPU count."""

    broker_timeout_s: float = 1.0
    """How long one period of silence is."""

    silent_periods: int = 3
    """After so many silent periods the worker turns to the next dispatcher on its list."""

    abort_before_s: float = 5.0
    """How long before its lease ends a worker that hears of no dispatcher aborts its jobs."""

    kill_before_s: float = 2.0
    """How long before its lease ends it kills what is left of them."""

    resend_s: float = 5.0
    """How long a report stays unacknowledged before the worker sends it again."""

    abort_grace_s: float = 5.0
    """How long an aborted job has to stop by itself before its process is killed."""

    start_timeout_s: float = 60.0
    """How long importing the app, opening its resources and its start-up hooks may take."""

    drain_s: float = 30.0
    """How long running jobs may go on after SIGTERM before they are handed back."""

    scratch: str = ""
    """Where jobs have their scratch folders; without it, the system's temporary folder."""

    stats_s: float = 5.0
    """How often CPU and memory are measured."""

    log_entries: int = 10_000
    """How many lines of what an attempt prints and logs are kept; of the rest, the last 100."""

    log_bytes: int = 4 * 1024 * 1024
    """And how many bytes of them."""

    log_line_bytes: int = 16 * 1024
    """A longer line is cut."""

    log_echo: bool = True
    """Whether what jobs print goes to the worker's own output too."""


class Config(Struct, frozen=True, kw_only=True):
    """Every setting of every process; each reads those that concern it."""

    store: str = DEFAULT_STORE
    """Where jobs are kept: sqlite:///FILE or postgresql://…"""

    listen_url: str | None = None
    """A direct address of the PostgreSQL behind `store`, for LISTEN, if `store` is a pooler's."""

    prepared_statements: bool = True
    """Whether PostgreSQL may be asked to keep statements; off behind an old pgbouncer."""

    backend: str = f"127.0.0.1:{BACKEND_PORT}"
    """Where a dispatcher listens for workers."""

    frontend: str = f"127.0.0.1:{FRONTEND_PORT}"
    """Where a dispatcher listens for clients."""

    curve_secret: str | None = None
    """The file with this process's own secret key. With it, all that is said is encrypted."""

    curve_server_key: str | None = None
    """The dispatchers' public key, for workers and clients: a file, or the key itself."""

    curve_workers: tuple[str, ...] = ()
    """Which workers a dispatcher lets in: folders of public key files, or single files."""

    curve_clients: tuple[str, ...] = ()
    """Which clients a dispatcher lets in: folders of public key files, or single files."""

    zeromq_heartbeat_s: float = 2.0
    """How often a dispatcher's sockets ask whether a connection still leads to anybody; 0: never.

    One that leaves three of these unanswered is closed.
    """

    connect: tuple[str, ...] = ()
    """The dispatchers that clients talk to; without it, the one at `frontend`."""

    worker_connect: tuple[str, ...] = ()
    """The dispatchers that workers talk to; without it, the one at `backend`."""

    request_timeout_s: float = 10.0
    """How long a client keeps asking before it says that no dispatcher answers."""

    app: str | None = None
    """What workers run, as module:app; several with commas."""

    workers: int = 1
    """How many worker processes `longshore up` runs."""

    target: str = ""
    """What machine a worker is; without it, its system and processor, like linux-x86_64."""

    queues: tuple[str, ...] = ()
    """The queues a worker serves; without it, all."""

    log_level: str = "info"
    """How much a process says on standard error: debug, info, warning or error."""

    file: str | None = None
    """The file that settings were read from. Not a key."""

    dispatcher: DispatcherSettings = field(default_factory=DispatcherSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)

    def client_addresses(self) -> tuple[str, ...]:
        """Where a client finds dispatchers, the first to be tried first."""
        return self.connect or (reachable(self.frontend),)

    def worker_addresses(self) -> tuple[str, ...]:
        """Where a worker finds dispatchers, the first to be tried first."""
        return self.worker_connect or (reachable(self.backend),)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach what listens at HOST:PORT."""
    host = address.removeprefix("tcp://").rpartition(":")[0]
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def reachable(bind: str) -> str:
    """Where a process on the same machine reaches what listens at an address."""
    host, _, port = bind.removeprefix("tcp://").rpartition(":")
    return f"tcp://{'127.0.0.1' if host in ('*', '0.0.0.0', '[::]') else host}:{port}"
