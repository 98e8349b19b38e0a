"""The pools of a worker: which ones it has, with how many slots, and what runs their jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import assert_never

from longshore.config import Config, WorkerSettings
from longshore.executors.container import ContainerExecutor
from longshore.executors.coroutine import CoroutineExecutor
from longshore.executors.engines import engine_of
from longshore.executors.frames import ProgramTerms
from longshore.executors.hosted import Hosting
from longshore.executors.process import ProcessExecutor
from longshore.executors.program import CommandExecutor
from longshore.executors.scratch import Room
from longshore.executors.thread import ThreadExecutor
from longshore.model.log import LogLimits
from longshore.model.worker import PROGRAM_POOLS, KindInfo, Pool
from longshore.ports import Executor, OnLog, OnReport
from longshore.run import machine


def make_executors(
    config: Config, scratch: Room, on_report: OnReport, on_log: OnLog
) -> dict[str, Executor]:
    """The executors of a worker, by pool."""
    settings = config.worker
    hosting = Hosting(
        config.app or "",
        abort_grace_s=settings.abort_grace_s,
        start_timeout_s=settings.start_timeout_s,
        scratch=scratch.path,
        scratch_lock=scratch.lock,
        log_limits=LogLimits(
            line_bytes=settings.log_line_bytes,
            entries=settings.log_entries,
            bytes=settings.log_bytes,
            echo=settings.log_echo,
        ),
        max_jobs=settings.max_jobs_per_process,
        max_mb=settings.max_process_mb,
        programs=ProgramTerms(
            exec=settings.exec,
            engine=engine_of(settings.engine),
            secrets=settings.secrets_folder,
            files=config.filesets,
            grace_s=settings.abort_grace_s,
            registries=settings.registries,
            sweep_s=settings.container_sweep_s,
            worker=machine.process_name(),
            fleet=",".join(config.worker_addresses()),
            state=settings.state_folder and os.path.abspath(settings.state_folder),
            gpus=settings.container_gpus,
        ),
    )
    executors: dict[str, Executor] = {}

    def executor(pool: Pool, slots: int) -> Executor:
        match pool:
            case Pool.COROUTINE:
                return CoroutineExecutor(hosting, slots, on_report, on_log)
            case Pool.PROCESS:
                return ProcessExecutor(hosting, slots, on_report, on_log)
            case Pool.THREAD:
                # The worker opens coroutines first: when it opens threads, the kinds are known.
                first = executors[Pool.COROUTINE]
                return ThreadExecutor(hosting, slots, on_report, on_log, lambda: first.kinds)
            case Pool.COMMAND:
                return CommandExecutor(hosting, slots, on_report, on_log, _known(executors))
            case Pool.CONTAINER:
                return ContainerExecutor(hosting, slots, on_report, on_log, _known(executors))
            case _:
                assert_never(pool)

    for pool, slots in pools_of(config).items():
        executors[pool] = executor(Pool(pool), slots)
    return executors


def _known(executors: Mapping[str, Executor]) -> Callable[[], Mapping[str, KindInfo]]:
    """The app's kinds, as the executor of coroutines has learned them; none without an app."""
    first = executors.get(Pool.COROUTINE)
    return lambda: {} if first is None else first.kinds


def pools_of(config: Config) -> dict[str, int]:
    """The pools of a worker, with their slots. Without an app it has no functions to run."""
    pools = Pool if config.app else PROGRAM_POOLS
    return {pool: _slots(config.worker, pool) for pool in Pool if pool in pools}


def _slots(settings: WorkerSettings, pool: Pool) -> int:
    """How many attempts a worker runs at once in this pool."""
    match pool:
        case Pool.COROUTINE:
            return settings.slots
        case Pool.PROCESS:
            return settings.processes or machine.cpu_count()
        case Pool.THREAD:
            return settings.threads
        case Pool.COMMAND:
            return settings.commands or machine.cpu_count()
        case Pool.CONTAINER:
            has_engine = bool(engine_of(settings.engine))
            return (settings.containers or machine.cpu_count()) if has_engine else 0
        case _:
            assert_never(pool)
