"""`longshore up`, `dispatcher`, `gateway` and `worker`.

These are the processes that run until they are told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import click

from longshore.cli.options import Decorated, config_options, examples, json_option, settings
from longshore.cli.view.show import print_json_line
from longshore.config import HTTP_OFF, Config, WorkerSettings
from longshore.errors import InvalidInput
from longshore.model.worker import POOLS
from longshore.run import machine
from longshore.run.logs import log_to_stderr, sayer
from longshore.run.ready import Announcer

_HTTP_KEYS = ("http", "http_tls_cert", "http_tls_key", "http_insecure")
_DISPATCHER_KEYS = ("store", "listen_url", *_HTTP_KEYS, "metrics", "backend", "frontend")
_SLOT_KEYS = tuple(pool.slots for pool in POOLS.values())
_WORKER_KEYS = (
    "app",
    *_SLOT_KEYS,
    "max_jobs_per_process",
    "max_process_mb",
    "target",
    "resources",
    "queues",
    "exec",
)
_DRAINS = (
    "SIGTERM or Ctrl-C stops it: running jobs may finish, for at most drain_s (30 s). A second one "
    "stops it at once."
)
_LEAVES = (
    "SIGTERM or Ctrl-C stops it: it commits what is under way. Its workers move to another "
    "dispatcher with the jobs they run, or wait until this one is back. A second one stops it at "
    "once."
)
_ANSWERS = (
    "SIGTERM or Ctrl-C stops it: requests under way may end, for at most http_drain_s (10 s), and "
    "streams end at once. A second one stops it at once."
)


def _process_options(command: Decorated) -> Decorated:
    """Adds the options of all of them."""
    command = click.option(
        "--ready-fd", type=int, metavar="N", help="Write one byte to this descriptor when ready."
    )(command)
    return json_option(config_options(command))


def _dispatcher_options(command: Decorated) -> Decorated:
    """Adds where jobs are kept and where to listen."""
    for flag, metavar, text in (
        ("--metrics", "HOST:PORT", "Where to show metrics (nowhere); port 0 is any."),
        ("--frontend", "HOST:PORT", "Where to listen for clients (127.0.0.1:7702); port 0 is any."),
        ("--backend", "HOST:PORT", "Where to listen for workers (127.0.0.1:7701); port 0 is any."),
        ("--listen-url", "URL", "PostgreSQL itself, for LISTEN, if --store is a pooler."),
        ("--store", "URL", "Where jobs are kept (sqlite:///.longshore/longshore.db)."),
    ):
        command = click.option(flag, metavar=metavar, help=text)(command)
    return command


def _http_options(default: str) -> Callable[[Decorated], Decorated]:
    """Adds where to listen for HTTP, and that there is to be none."""

    def add(command: Decorated) -> Decorated:
        command = click.option(
            "--no-http", "http", flag_value=HTTP_OFF, help="Do not listen for HTTP."
        )(command)
        text = f"Where to listen for HTTP ({default}); port 0 is any."
        command = _tls_options(command)
        return click.option("--http", "http", metavar="HOST:PORT", help=text)(command)

    return add


def _tls_options(command: Decorated) -> Decorated:
    """Adds what it takes to listen beyond this machine."""
    text = "Let other machines in without TLS, and anybody without a token."
    command = click.option("--insecure", "http_insecure", is_flag=True, default=None, help=text)(
        command
    )
    for flag, key, text in (
        ("--tls-key", "http_tls_key", "Its private key, unless --tls-cert holds it too."),
        ("--tls-cert", "http_tls_cert", "The certificate for HTTPS; read again if it changes."),
    ):
        command = click.option(flag, key, metavar="FILE", help=text)(command)
    return command


def _worker_options(command: Decorated) -> Decorated:
    """Adds which jobs a worker runs, and how many at once."""
    for flag, metavar, text in (
        ("--queues", "NAME[,…]", "Serve only these queues (all)."),
        (
            "--target",
            "NAME",
            "The kind of this machine (its system and processor: linux-x86_64).",
        ),
        (
            "--resources",
            "AMOUNTS",
            "What its jobs share, like cpu=8,memory=32g,gpu=2 (its CPUs and memory).",
        ),
        ("--max-process-mb", "MB", "Replace a process that has more memory after a job (any)."),
        ("--max-jobs-per-process", "N", "Replace a process after so many jobs (never)."),
    ):
        command = click.option(flag, metavar=metavar, help=text)(command)
    for pool in reversed(POOLS.values()):
        default = getattr(WorkerSettings(), pool.slots) or "the number of CPUs"
        text = f"How many {pool.runs} at once ({default})."
        command = click.option(f"--{pool.slots}", metavar="N", help=text)(command)
    command = click.option(
        "--exec",
        is_flag=True,
        default=None,
        help="Run commands and images that submitters choose: whoever may submit is this user.",
    )(command)
    command = click.option(
        "--reload",
        is_flag=True,
        help="Restart workers when a .py file here changes; for development.",
    )(command)
    return click.option(
        "--app",
        metavar="MODULE:APP",
        multiple=True,
        callback=lambda context, option, given: ",".join(given) or None,
        help="The app whose jobs to run; repeatable.",
    )(command)


@click.command(
    short_help="Run everything on this machine, workers too.",
    help=(
        "Run everything on this machine: a dispatcher, a gateway for HTTP, and workers for an app."
        f"\n\n{_DRAINS}"
    ),
    epilog=examples(
        "longshore up --app myapp:app",
        "longshore up --app myapp:app --reload",
        "longshore up --app myapp:app --workers 4 --slots 50",
        "longshore up --store postgresql://user@db.example/longshore --app myapp:app",
        "longshore up --set lease_s=30 --set drain_s=5m --app myapp:app",
        "longshore up --app myapp:app --no-http",
    ),
)
@_dispatcher_options
@_http_options("127.0.0.1:7700")
@click.option("--workers", metavar="N", help="How many worker processes (1).")
@_worker_options
@_process_options
def up(**given: Any) -> None:
    """Runs a dispatcher and its workers until told to stop."""
    from longshore.run import compose

    config = settings(given, *_DISPATCHER_KEYS, "workers", *_WORKER_KEYS)
    _run(given, "up", config, partial(compose.run_up, reload=given["reload"]))


@click.command(
    short_help="Run a dispatcher: it gives jobs to workers.",
    help=f"Run a dispatcher: it gives jobs to workers and answers clients.\n\n{_LEAVES}",
    epilog=examples(
        "longshore dispatcher",
        "longshore dispatcher --store postgresql://user@db.example/longshore",
        "longshore dispatcher --backend 127.0.0.1:7801 --frontend 127.0.0.1:7802",
        "longshore dispatcher --http 127.0.0.1:7700",
    ),
)
@_dispatcher_options
@_http_options("nowhere")
@_process_options
def dispatcher(**given: Any) -> None:
    """Runs a dispatcher until told to stop."""
    from longshore.run import compose

    config = settings(given, *_DISPATCHER_KEYS)
    _run(given, "dispatcher", config, compose.run_dispatcher)


@click.command(
    short_help="Run a gateway: it answers clients over HTTP.",
    help=f"Run a gateway: it answers clients over HTTP by asking dispatchers.\n\n{_ANSWERS}",
    epilog=examples(
        "longshore gateway",
        "longshore gateway --connect tcp://127.0.0.1:7702,tcp://127.0.0.1:7712",
        "longshore gateway --http 127.0.0.1:8080",
        "longshore gateway --http 0.0.0.0:7700 --tls-cert dock.pem --tls-key dock.key",
    ),
)
@_tls_options
@click.option(
    "--http", metavar="HOST:PORT", help="Where to listen (127.0.0.1:7700); port 0 is any."
)
@click.option(
    "--connect",
    metavar="ADDRESS[,…]",
    help="Dispatchers to ask (tcp://127.0.0.1:7702); the first that answers.",
)
@click.option(
    "--backend",
    "worker_connect",
    metavar="ADDRESS[,…]",
    help="Dispatchers to send callbacks for (port 7701 of the hosts in --connect).",
)
@click.option("--http-fd", type=int, hidden=True)
@click.option("--parent", type=int, hidden=True)
@_process_options
def gateway(**given: Any) -> None:
    """Runs a gateway until told to stop."""
    from longshore.run.gateway import run_gateway

    config = settings(given, *_HTTP_KEYS, "connect", "worker_connect")
    if given["parent"] is not None:
        machine.die_with(given["parent"])
    _run(given, "gateway", config, partial(run_gateway, descriptor=given["http_fd"]))


@click.command(
    help=f"Run a worker: it takes jobs from a dispatcher and runs them.\n\n{_DRAINS}",
    epilog=examples(
        "longshore worker --app myapp:app",
        "longshore worker --app shop:app --connect tcp://dock1:7701,tcp://dock2:7701",
        "longshore worker --app shop:app --app mail:app",
        "longshore worker --app myapp:app --queues mail,reports --slots 20",
    ),
)
@_worker_options
@click.option(
    "--connect",
    "worker_connect",
    metavar="ADDRESS[,…]",
    help="Dispatchers to work for (tcp://127.0.0.1:7701); the first that answers.",
)
@click.option("--parent", type=int, hidden=True)
@_process_options
def worker(**given: Any) -> None:
    """Runs a worker until told to stop."""
    from longshore.run import compose

    config = settings(given, "worker_connect", *_WORKER_KEYS)
    if config.app is None and not config.worker.exec:
        raise InvalidInput(
            "a worker needs the app whose jobs it runs: --app module:app; or --exec, to run the "
            "commands of anybody who may submit"
        )
    if given["parent"] is not None:
        machine.die_with(given["parent"])
    work = compose.run_reloading if given["reload"] else compose.run_worker
    _run(given, "worker", config, work)


def _run(
    given: dict[str, Any],
    role: str,
    config: Config,
    work: Callable[[Config, Announcer], Coroutine[Any, Any, None]],
) -> None:
    on_facts, say = print_json_line if given["as_json"] else None, sayer(config.log_format)
    announcer = Announcer(role, given["ready_fd"], on_facts, say)
    log_to_stderr(config.log_level, config.log_format)
    machine.run(work(config, announcer))
