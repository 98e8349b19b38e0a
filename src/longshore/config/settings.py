"""Every setting of every process, with its default and the bounds that must hold."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from longshore.config.addresses import reachable
from longshore.config.file_settings import FileSettings
from longshore.config.gateway_settings import GatewaySettings
from longshore.errors import ConfigError
from longshore.model.batch import BATCH_BYTES
from longshore.model.callback import CallbackTerms

PREFIX: Final = "LONGSHORE_"
DEFAULT_STORE: Final = "sqlite:///.longshore/longshore.db"
HTTP_PORT: Final = 7700
BACKEND_PORT: Final = 7701
FRONTEND_PORT: Final = 7702
METRICS_PORT: Final = 7703
_USUAL_PORT: Final = str(FRONTEND_PORT)
DEFAULT_HTTP: Final = f"127.0.0.1:{HTTP_PORT}"
HTTP_OFF: Final = "off"
# The variables of an `on_worker_lost` command. A `longshore` command in it must not take them for
# settings.
LOST_VARIABLES: Final = tuple(
    f"{PREFIX}WORKER_{word}"
    for word in (
        "ID",
        "NAME",
        "HOST",
        "REASON",
        "SESSION",
        "INSTANCE_ID",
        "PRIVATE_IP",
        "PUBLIC_IP",
    )
)


class DispatcherSettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of a dispatcher."""

    lease_s: float = 15.0
    """A worker that is silent for this long is lost, and its jobs go to others."""

    ping_s: float = 1.0
    """How often a worker sends a PING; less often in a large fleet, see `max_pings_per_s`."""

    max_pings_per_s: int = 300
    """The most PINGs that a dispatcher claims: with more workers, each sends fewer."""

    renew_s: float = 1.5
    """How often a dispatcher renews its own lease in the store."""

    dispatcher_lease_s: float = 5.0
    """How long after it sent a renewal a dispatcher may still grant leases to workers."""

    takeover_margin_s: float = 7.0
    """How long beyond `lease_s` other dispatchers leave a silent dispatcher's workers alone.

    At least `dispatcher_lease_s`: until then the silent one may have granted a lease.
    """

    poll_s: float = 2.0
    """How often a dispatcher asks the store for jobs of which no hint told it."""

    promote_s: float = 1.0
    """How often, at least, a dispatcher looks for delayed jobs that are due, and expired ones."""

    cancel_poll_s: float = 0.5
    """How often a dispatcher looks for cancels and drains made through other dispatchers."""

    group_poll_s: float = 2.0
    """How often a dispatcher looks for what a dead one left to do for groups."""

    group_staging_s: float = 600.0
    """An incomplete group that gets no further part for this long is cancelled; 0 is never."""

    group_stall_s: float = 600.0
    """A running group without any progress for this long is looked at closely; 0 is never."""

    group_watch_s: float = 60.0
    """How often a dispatcher looks which groups make progress, at most a thousand of them."""

    stalled_groups: str = "log"
    """What is done to a group that makes no progress though it could: log, repair or cancel."""

    run_times_s: float = 10.0
    """How often a dispatcher stores how long the jobs of each kind ran."""

    metrics_s: float = 5.0
    """How often a dispatcher with metrics counts the jobs in the store and what holds them back."""

    metrics_most_labels: int = 200
    """How many kinds, queues with kinds, and pools metrics tell apart; the rest are `other`."""

    heartbeat_s: float = 10.0
    """How often a dispatcher stores when it last heard of each worker, and how busy that is."""

    cancel_grace_s: float = 30.0
    """How long a cancelled job's worker has to stop it before it counts as cancelled anyway."""

    expire_s: float = 5.0
    """How often a dispatcher looks for jobs that their worker did not stop at their timeout."""

    timeout_margin_s: float = 10.0
    """How long after its timeout a dispatcher ends a job that its worker did not stop."""

    sweep_s: float = 5.0
    """How often a dispatcher looks for jobs that no live worker owns."""

    keep_succeeded_s: float = 7 * 86_400.0
    """How long a job or group that succeeded is kept; 0 is for ever."""

    keep_failed_s: float = 30 * 86_400.0
    """How long any other ended job or group is kept; 0 is for ever."""

    keep_most: int = 1_000_000
    """How many ended jobs of each state are kept, the newest; 0 is no bound."""

    archive_logs_s: float = 0.0
    """How long after its end gateways move a job's log to the file store; 0 is never."""

    keep_workers_s: float = 7 * 86_400.0
    """How long a worker that ended is remembered; 0 is for ever."""

    keep_audit_s: float = 90 * 86_400.0
    """How long entries of the audit, and tokens that are worth nothing, are kept; 0 is for ever."""

    prune_s: float = 60.0
    """How often a dispatcher removes jobs, groups and workers that are kept no longer."""

    max_bulks: int = 10
    """How many bulks may run at once."""

    bulk_page_jobs: int = 500
    """How many jobs a bulk changes in one transaction, at most a thousand."""

    plain_expire_s: float = 3.0
    """An idle worker of the plain dialogue that is silent for this long is removed."""

    plain_probe_s: float = 5.0
    """How often a dispatcher checks that a busy plain worker is still connected."""

    on_worker_lost: str = ""
    """The command to run, or the URL to post to, when a worker is lost."""

    on_worker_lost_secret: str = ""
    """The secret that signs a post to that URL."""

    callback_attempts: int = 20
    """How often a callback is tried before it is given up."""

    callback_backoff_s: float = 5.0
    """How long a callback waits after its first failure; twice as long after each further one."""

    callback_max_backoff_s: float = 3600.0
    """The longest that a callback waits between two attempts."""

    callback_timeout_s: float = 20.0
    """How long the receiver of a callback may take to answer."""

    max_callback_bytes: int = 256 * 1024
    """The largest body of a callback; from a larger one the result is left out."""

    crash_limit: int = 3
    """A job whose process died this often fails as poisonous."""

    max_batch: int = 1_000
    """The most submits, finishes or claims in one transaction."""

    max_batch_bytes: int = BATCH_BYTES
    """The most bytes of arguments or results in one transaction; its last item may go beyond."""

    overlap_from: int = 250
    """With so many submits and finishes queued, a second transaction starts beside the first.

    Not on SQLite, which runs one transaction at a time.
    """

    slot_wait_s: float = 0.025
    """How long a submit waits for a slot while none comes free; then it is queued."""

    max_slot_wait_s: float = 0.5
    """How long submits wait while slots come free one by one; then they are queued."""

    max_value_bytes: int = 1024 * 1024
    """The largest arguments or result of a job."""

    max_unsent_bytes: int = 64 * 1024 * 1024
    """How much is held for a peer that does not read; answers past it are dropped."""

    max_queued_submits: int = 200_000
    """How many submits may wait for the store; past it clients are told to try again."""

    max_requests: int = 10_000
    """How many requests but WAITs may be under way; past it clients are told to try again."""

    max_peer_requests: int = 5_000
    """How many requests but WAITs one connection may have under way."""

    max_waited_jobs: int = 1_000_000
    """How many jobs clients may wait for; past it only WAITs are told to try again."""

    max_peer_waited_jobs: int = 100_000
    """How many jobs one connection may wait for. In both limits a WAIT counts as 100 or more."""

    max_queued_bytes: int = 256 * 1024 * 1024
    """How many bytes of arguments may wait for the store; past it clients try again."""

    max_plain_requests: int = 10_000
    """How many unended jobs plain clients may have; past it they are told to try again."""

    max_lanes: int = 10_000
    """How many lanes (queue, kind, target) there may be; those that workers serve are free."""

    max_client_lanes: int = 1_000
    """How many lanes that no worker serves one client may add."""

    max_web_workers: int = 1_000
    """How many web workers may be registered."""

    web_poll_s: float = 1.0
    """How often a dispatcher looks for ends that web workers told through another gateway."""

    max_fileset_bytes: int = 1024**4
    """The most bytes that the files of one version of a fileset may have."""

    filesets_gc_s: float = 600.0
    """How often a dispatcher looks for versions, uploads and files that nothing needs any more."""

    blob_unused_s: float = 86_400.0
    """How long nothing must have needed a file before it is given up, and an upload stood still."""

    blob_doomed_s: float = 3600.0
    """How long after that its bytes are kept, for those who are reading them."""

    versions_keep: int = 0
    """How many versions of each fileset stay when dispatchers remove old ones; 0 removes none."""

    versions_older_s: float = 30 * 86_400.0
    """Only versions that are so old are removed by that."""

    max_group_jobs: int = 100_000
    """How many jobs a group may have."""

    max_mailbox: int = 10_000
    """How many messages an actor may have not read before senders from outside are refused."""

    max_tokens: int = 1_000
    """How many tokens there may be that are not revoked."""

    max_group_edges: int = 1_000_000
    """How many dependencies the jobs of a group may have in all."""

    max_wait_s: float = 30.0
    """How long a request may wait at a dispatcher; then it gets an empty answer."""

    def __post_init__(self) -> None:
        """Refuses leases under which two workers could run one job, or no worker could run any."""
        own_s, margin_s = self.dispatcher_lease_s, self.takeover_margin_s
        if margin_s < own_s:
            raise ConfigError(
                f"takeover_margin_s is {margin_s:g} and dispatcher_lease_s {own_s:g}: other "
                "dispatchers could give away jobs that a silent one's workers still run; "
                f"set takeover_margin_s to {own_s:g} or more"
            )
        if self.renew_s >= own_s:
            raise ConfigError(
                f"renew_s is {self.renew_s:g} and dispatcher_lease_s {own_s:g}: a dispatcher's own "
                "lease would end before it is renewed, and its workers would stop their jobs; "
                "set renew_s lower, to a third of dispatcher_lease_s or so"
            )


def callback_terms(settings: DispatcherSettings) -> CallbackTerms:
    """How a dispatcher has callbacks tried."""
    return CallbackTerms(
        attempts=settings.callback_attempts,
        backoff_s=settings.callback_backoff_s,
        max_backoff_s=settings.callback_max_backoff_s,
        timeout_s=settings.callback_timeout_s,
        max_bytes=settings.max_callback_bytes,
    )


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of a worker."""

    slots: int = 100
    """How many `async def` jobs run at once."""

    processes: int = 0
    """How many jobs with a process of their own run at once; 0 is the number of CPUs."""

    threads: int = 32
    """How many jobs with `isolation="thread"` run at once."""

    commands: int = 0
    """How many commands run at once; 0 is the number of CPUs."""

    containers: int = 0
    """How many containers run at once; 0 is the number of CPUs, or none without an engine."""

    exec: bool = False
    """Whether whoever may submit chooses commands and images, which run as the worker's user."""

    engine: str = ""
    """Where the engine of containers listens, as unix:///path or tcp://host:port; `off` is none.

    By default `DOCKER_HOST`, or /var/run/docker.sock if an engine answers there.
    """

    registries: str = ""
    """The file with credentials for registries of images, in the format of Docker's config.json."""

    container_sweep_s: float = 60.0
    """How often the worker looks for containers that a dead worker left on its engine."""

    container_gpus: bool = False
    """Whether the engine gives containers the GPUs that their jobs take (`gpu`).

    It needs what the maker of the GPUs has for that, such as NVIDIA's container toolkit.
    """

    first_devices: str = ""
    """With which number the worker's devices begin, like gpu=2; by default with 0.

    It is for machines where others have the first ones.
    """

    state_folder: str = ""
    """The folder by which a worker that was killed takes its containers back when it is restarted
    within its lease; empty: they end with it. Each worker needs its own."""

    secrets_folder: str = ""
    """The folder whose files are the secrets that commands and containers can ask for by name."""

    lookahead_s: float = 0.1
    """How far ahead of its free processes and threads a worker asks for short jobs; 0 is never."""

    lookahead_runs: int = 20
    """How many runs of a kind must have ended before the worker asks for some ahead."""

    max_jobs_per_process: int = 0
    """How many jobs run in a process before another takes its place; 0 is any number."""

    max_process_mb: int = 0
    """A process with more resident memory (MiB) after a job is replaced; 0 is no limit."""

    broker_timeout_s: float = 1.0
    """How long one period of silence is."""

    silent_periods: int = 3
    """How many silent periods make the worker turn to the next dispatcher on its list."""

    abort_before_s: float = 5.0
    """How long before its lease ends a worker that hears no dispatcher aborts its jobs."""

    kill_before_s: float = 2.0
    """How long before its lease ends it kills the jobs that did not stop."""

    resend_s: float = 5.0
    """How long a report stays unacknowledged before the worker sends it again."""

    abort_grace_s: float = 5.0
    """How long an aborted job has to stop by itself before its process is killed."""

    start_timeout_s: float = 60.0
    """How long importing the app, opening its resources and its start-up hooks may take."""

    drain_s: float = 30.0
    """How long running jobs may go on after SIGTERM before they are handed back."""

    scratch: str = ""
    """Where the scratch folders of jobs are; by default in the system's temporary folder."""

    instance_id: str = ""
    """What the worker's machine is called where it is looked after; by default its host name."""

    private_ip: str = ""
    """The machine's address among its own; by default the one by which it reaches dispatchers."""

    public_ip: str = ""
    """The machine's address for others, if it has one."""

    stats_s: float = 5.0
    """How often the worker measures CPU and memory."""

    log_entries: int = 10_000
    """How many lines of an attempt's log are kept; of further lines only the last 100 are."""

    log_bytes: int = 4 * 1024 * 1024
    """How many bytes of an attempt's log are kept."""

    log_line_bytes: int = 16 * 1024
    """The longest line of a log; a longer one is cut."""

    log_echo: bool = True
    """Whether the output of jobs goes to the worker's own output too."""


class Config(Struct, frozen=True, kw_only=True):
    """Every setting of every process; each process reads those that it needs."""

    store: str = DEFAULT_STORE
    """Where jobs are kept: sqlite:///FILE or postgresql://…"""

    listen_url: str | None = None
    """If `store` is a pooler: the address of PostgreSQL itself, for LISTEN."""

    prepared_statements: bool = True
    """Whether to use prepared statements in PostgreSQL; turn it off behind an old pgbouncer."""

    backend: str = f"127.0.0.1:{BACKEND_PORT}"
    """Where a dispatcher listens for workers."""

    frontend: str = f"127.0.0.1:{FRONTEND_PORT}"
    """Where a dispatcher listens for clients."""

    http: str | None = None
    """Where a gateway listens for HTTP, or `off`.

    By default `longshore up` and `longshore gateway` listen on 127.0.0.1:7700, and a dispatcher
    starts no gateway.
    """

    metrics: str = ""
    """Where a dispatcher shows its metrics and whether it is ready, as HOST:PORT; empty is nowhere.

    A gateway shows its own where it listens for HTTP.
    """

    http_allow: tuple[str, ...] = ()
    """What Longshore may call over HTTP beside public addresses: addresses, networks, host names.

    Callbacks, web workers and `on_worker_lost` go there. A process that listens on this machine
    only may call this machine, too.
    """

    curve_secret: str | None = None
    """The file with this process's own secret key. With it, all messages are encrypted."""

    curve_server_key: str | None = None
    """The dispatchers' public key, for workers and clients: a file, or the key itself."""

    curve_workers: tuple[str, ...] = ()
    """The workers that a dispatcher lets in: folders of public key files, or single files."""

    curve_clients: tuple[str, ...] = ()
    """The clients that a dispatcher lets in: folders of public key files, or single files."""

    curve_gateways: tuple[str, ...] = ()
    """The gateways that a dispatcher lets in: folders of public key files, or single files.

    They connect to both of its ports. They alone run what Longshore does itself, and may ask for
    holders of tokens.
    """

    zeromq_heartbeat_s: float = 2.0
    """How often a dispatcher's sockets probe a connection; 0 is never.

    A connection that leaves three probes unanswered is closed.
    """

    connect: tuple[str, ...] = ()
    """The dispatchers that clients talk to; by default the one at `frontend`."""

    worker_connect: tuple[str, ...] = ()
    """The dispatchers that workers talk to; by default the one at `backend`."""

    request_timeout_s: float = 10.0
    """How long a client keeps asking before it reports that no dispatcher answers."""

    app: str | None = None
    """The app whose jobs workers run, as module:app; several with commas."""

    workers: int = 1
    """How many worker processes `longshore up` runs."""

    resources: str = ""
    """What the jobs of a worker share, like cpu=8,memory=32g,gpu=2.

    What is not named of `cpu` and `memory` is what the machine has; with several workers of
    `longshore up`, a share of it.
    """

    target: str = ""
    """The kind of machine a worker is; by default system and processor, like linux-x86_64."""

    queues: tuple[str, ...] = ()
    """The queues that a worker serves; by default all."""

    log_format: str = "text"
    """How a process logs: `text`, a line for people, or `json`, an object on each line."""

    log_level: str = "info"
    """How much a process logs on standard error: debug, info, warning or error."""

    file: str | None = None
    """The file that settings were read from. Not a key."""

    dispatcher: DispatcherSettings = field(default_factory=DispatcherSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    filesets: FileSettings = field(default_factory=FileSettings)

    def client_addresses(self) -> tuple[str, ...]:
        """Where a client looks for dispatchers, in this order."""
        return self.connect or (reachable(self.frontend),)

    def worker_addresses(self) -> tuple[str, ...]:
        """Where a worker looks for dispatchers, in this order."""
        return self.worker_connect or (reachable(self.backend),)

    def gateway_addresses(self) -> tuple[str, ...]:
        """Where the workers of a gateway look for dispatchers, in this order.

        Unless they are named, they are where the gateway asks, if the ports are the usual ones.
        """
        if self.worker_connect or not self.connect:
            return self.worker_addresses()
        pairs = (address.rpartition(":") for address in self.connect)
        return tuple(f"{host}:{BACKEND_PORT}" for host, _, port in pairs if port == _USUAL_PORT)


def http_address(config: Config, default: str | None = DEFAULT_HTTP) -> str | None:
    """Where a gateway listens; None if there is to be none."""
    chosen = config.http or default
    return None if chosen == HTTP_OFF else chosen
