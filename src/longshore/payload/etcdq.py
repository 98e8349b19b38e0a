"""Documents of the Etcd Job Queue: its jobs are accepted, and jobs and workers shown, as such.

    job      Container {Config, then the engine's own description}, Fileset {Input, Output},
             Owner, States [{State, Step, Date}], Result {Status, Info}
    worker   Name, InstanceId, PrivateIp, PublicIp, Job, Heartbeat, Stats {Cpu, Mem}, Status

A submitted document needs a `Container.Config` with an `Image`. What only a running system writes
(`Owner`, `States`, `Result`) may be there, be empty or be missing. What asks for more than a
container may have is refused by its name, never dropped (`etcdq_terms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from longshore.core.images import parse_image
from longshore.core.lifecycle import TERMINAL
from longshore.core.programs import OWN_PREFIX
from longshore.errors import InvalidInput, WrongState
from longshore.model.job import Job, JobState
from longshore.model.log import ENGINE, STEP, LogLine
from longshore.model.program import (
    CONTAINER_KIND,
    GPU_VARIABLE,
    Container,
    Input,
    Limits,
    Output,
)
from longshore.model.worker import WorkerView
from longshore.payload.etcdq_terms import NANO, NETWORKED, NO_NETWORK, check_terms, was_shown

QUEUED: Final = "QUEUED"
STARTED: Final = "STARTED"
FINISHED: Final = "FINISHED"

_WAITS: Final = frozenset({JobState.WAITING, JobState.DELAYED, JobState.READY})
_EXAMPLE: Final = '{"Container": {"Config": {"Image": "tools:1", "Cmd": ["true"]}}}'


class _Files(Struct, frozen=True, rename="pascal"):
    name: str = ""
    patterns: tuple[str, ...] | None = None


class _Fileset(Struct, frozen=True, rename="pascal"):
    input: _Files | None = None
    output: _Files | None = None


class _Config(Struct, frozen=True, rename="pascal"):
    image: str
    cmd: tuple[str, ...] | str | None = None
    entrypoint: tuple[str, ...] | str | None = None
    env: tuple[str, ...] | None = None
    user: str | None = None
    working_dir: str | None = None
    memory: int | None = None
    network_disabled: bool | None = None


class _HostConfig(Struct, frozen=True, rename="pascal"):
    memory: int | None = None
    nano_cpus: int | None = None
    pids_limit: int | None = None
    network_mode: str | None = None


class _Container(Struct, frozen=True, rename="pascal"):
    config: dict[str, Any]
    host_config: dict[str, Any] | None = None


class _Job(Struct, frozen=True, rename="pascal"):
    container: _Container
    fileset: _Fileset | None = None


# what is submitted


def read_job(data: bytes) -> Container:
    """The container that a document describes; raises `InvalidInput` that says what is wrong."""
    try:
        document = msgspec.json.decode(data, type=_Job)
        config = msgspec.convert(document.container.config, _Config)
        host = msgspec.convert(document.container.host_config or {}, _HostConfig)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"this is no job of the Etcd Job Queue: {error}; it looks like {_EXAMPLE}"
        ) from None
    check_terms(document.container.config, document.container.host_config or {})
    parse_image(config.image)
    files = document.fileset or _Fileset()
    return Container(
        image=config.image,
        command=_words(config.cmd),
        entrypoint=_words(config.entrypoint),
        env=_environ(config.env or (), was_shown=was_shown(document.container.config)),
        user=config.user or "",
        folder=config.working_dir or "",
        network=_has_network(config, host),
        limits=_limits(config, host),
        inputs=_inputs(files.input),
        outputs=_outputs(files.output),
    )


def arguments(program: Container) -> dict[str, Any]:
    """The arguments of a job of kind `CONTAINER_KIND` that runs a program."""
    found = msgspec.to_builtins(program)
    assert isinstance(found, dict)
    return {name: value for name, value in found.items() if name != "run"}


def _has_network(config: _Config, host: _HostConfig) -> bool:
    """Whether it may reach the engine's network: only if the document says so."""
    if config.network_disabled is None:
        return host.network_mode in NETWORKED
    return not config.network_disabled and host.network_mode != NO_NETWORK


def _limits(config: _Config, host: _HostConfig) -> Limits:
    """What it may use at most; an engine takes 0 and -1 for no limit."""
    cpus, pids = host.nano_cpus or 0, host.pids_limit or 0
    return Limits(
        memory_bytes=host.memory or config.memory or None,
        cpus=cpus / NANO if cpus > 0 else None,
        pids=pids if pids > 0 else None,
    )


def _words(given: tuple[str, ...] | str | None) -> tuple[str, ...]:
    if isinstance(given, str):
        return ("/bin/sh", "-c", given) if given else ()
    return given or ()


def _environ(given: Sequence[str], *, was_shown: bool) -> dict[str, str]:
    """The variables. Of a job that was shown, those are left out that Longshore gave it."""
    found = {name: value for name, _, value in (one.partition("=") for one in given)}
    if not was_shown:
        return found
    return {
        name: value
        for name, value in found.items()
        if not name.startswith(OWN_PREFIX) and name != GPU_VARIABLE
    }


def _inputs(files: _Files | None) -> tuple[Input, ...]:
    if files is None or not files.name:
        return ()
    return (Input(fileset=files.name, patterns=files.patterns or ("**",)),)


def _outputs(files: _Files | None) -> tuple[Output, ...]:
    """Without a name nothing is pushed."""
    if files is None or not files.name:
        return ()
    return (Output(fileset=files.name, patterns=files.patterns or ("**",)),)


# what is shown


def job_document(job: Job, log: Sequence[LogLine], owner: str) -> dict[str, Any]:
    """A container job as a document. `owner` names the worker that has it.

    `log` are the lines of its log that tell its steps, and the engine's description.
    """
    described = _described(log)
    program = _program(job)
    if program is None and described is None:
        raise WrongState(
            f"job {job.number} is of kind '{job.kind}' and has run no container so far; only "
            "containers can be shown as documents of the Etcd Job Queue"
        )
    description = _decoded(described)
    if "Config" not in description and program is not None:
        description = {"Config": _config(program), "HostConfig": _host_config(program)}
    document = {
        "Container": {"Config": {}, **description},
        "Fileset": _fileset(program),
        "Owner": "" if job.state in _WAITS else owner,
        "States": _states(job, log),
    }
    if job.state in TERMINAL:
        document["Result"] = _result(job)
    return document


def worker_document(view: WorkerView, job: int | None) -> dict[str, Any]:
    """A worker as a document. `job` is the number of a job that it runs, if it runs one."""
    info = view.info
    seen_at = view.seen_at or view.attended_at
    return {
        "Name": info.name or str(info.id),
        "InstanceId": info.machine.instance or info.host,
        "PrivateIp": info.machine.private_ip,
        "PublicIp": info.machine.public_ip,
        "Job": "" if job is None else str(job),
        "Heartbeat": _date(seen_at),
        "Stats": {"Cpu": view.cpu_percent or 0.0, "Mem": view.memory_percent or 0.0},
        "Status": "ALIVE" if view.alive else "DEAD",
    }


def _program(job: Job) -> Container | None:
    if job.kind != CONTAINER_KIND:
        return None
    try:
        return msgspec.msgpack.decode(job.args, type=Container)
    except msgspec.MsgspecError:
        return None


def _described(log: Sequence[LogLine]) -> str | None:
    """What the engine said of the last container; None if it said nothing. It has several lines."""
    said = [line for line in log if line.stream == ENGINE]
    return "".join(line.text for line in said if line.token == said[-1].token) if said else None


def _decoded(described: str | None) -> dict[str, Any]:
    """The engine's description; one that has not come whole is left out."""
    try:
        return msgspec.json.decode(described or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _config(program: Container) -> dict[str, Any]:
    config: dict[str, Any] = {
        "Image": program.image,
        "Cmd": list(program.command),
        "Env": [f"{name}={value}" for name, value in program.env.items()],
        "NetworkDisabled": not program.network,
    }
    more = {
        "Entrypoint": list(program.entrypoint),
        "User": program.user,
        "WorkingDir": program.folder,
        "Memory": program.limits.memory_bytes,
    }
    return config | {key: value for key, value in more.items() if value}


def _host_config(program: Container) -> dict[str, Any]:
    cpus, pids = program.limits.cpus, program.limits.pids
    limits = {"NanoCpus": round((cpus or 0) * NANO), "PidsLimit": pids}
    return {key: value for key, value in limits.items() if value}


def _fileset(program: Container | None) -> dict[str, Any]:
    files: dict[str, Any] = {}
    if program is not None and program.inputs:
        files["Input"] = _shown_files(program.inputs[0])
    if program is not None and program.outputs:
        files["Output"] = _shown_files(program.outputs[0])
    return files


def _shown_files(files: Input | Output) -> dict[str, Any]:
    return {"Name": files.fileset, "Patterns": list(files.patterns)}


def _states(job: Job, log: Sequence[LogLine]) -> list[dict[str, str]]:
    """What the job went through, steps and all, in order; at least where it is now."""
    told = [(entry.at, _state(entry.state), "") for entry in job.history]
    told = told or [(job.created_at, _state(job.state), "")]
    steps = [(line.at, STARTED, line.text) for line in log if line.stream == STEP]
    last = [told.pop()] if job.state in TERMINAL else []
    # Its steps may be stored a moment after its end.
    ordered = sorted([*told, *steps], key=lambda one: one[0]) + last
    return [{"State": state, "Step": step, "Date": _date(at)} for at, state, step in ordered]


def _state(state: JobState) -> str:
    if state in TERMINAL:
        return FINISHED
    return QUEUED if state in _WAITS else STARTED


def _result(job: Job) -> dict[str, str]:
    if job.state is JobState.SUCCEEDED:
        return {"Status": "SUCCESS", "Info": "container exited with code 0"}
    info = job.error.message if job.error is not None else job.state.value
    return {"Status": "FAILURE", "Info": info}


def _date(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
