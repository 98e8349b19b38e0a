"""How an engine is told to make a container: the least that the job asks for, and nothing more.

No privileges, no folder of the machine but the attempt's own, no namespace of the machine, no
network unless the job asks for one. Nothing here takes such things from a job: `model.program` has
no words for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from longshore.executors.host.programs.runner import RunningProgram
from longshore.executors.left_behind import HOST_VARIABLE
from longshore.model.program import GPU, GPU_VARIABLE, Container

WORK: Final = "/work"
REPORT: Final = "/longshore"
SECRETS: Final = "/longshore-secrets"

PREFIX: Final = "longshore."
FLEET: Final = "longshore.fleet"
WORKER: Final = "longshore.worker"
JOB: Final = "longshore.job"
TOKEN: Final = "longshore.token"
PROCESS: Final = "longshore.process"

_NANO: Final = 1_000_000_000


class Owner(Struct, frozen=True):
    """Whose containers they are: they carry it as labels.

    `process` is the mark of the process that attends them. If that has ended, nobody does.
    """

    process: str
    worker: str = ""
    fleet: str = ""


def name_of(job: object, token: int) -> str:
    """The name of an attempt's container."""
    return f"longshore-{job}-{token}"


def config_of(
    running: RunningProgram[Container], owner: Owner, *, gpus: bool = False
) -> dict[str, Any]:
    """What a container is created with; with `gpus`, the engine gives it those that it has."""
    program, environ, host = running.program, _environ(running, owner), _host_config(running)
    own = [one.numbers for one in running.assignment.devices if one.name == GPU]
    if gpus and own:
        host["DeviceRequests"] = [_gpus(own[0])]
        # It sees no others, and counts those that it sees from 0 on.
        del environ[GPU_VARIABLE]
    config: dict[str, Any] = {
        "Image": program.image,
        "Env": [f"{name}={value}" for name, value in environ.items()],
        "Labels": _labels(running, owner),
        "WorkingDir": str(Path(WORK, program.folder)),
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": host,
    }
    # Left out, these are the image's own.
    if program.command:
        config["Cmd"] = list(program.command)
    if program.entrypoint:
        config["Entrypoint"] = list(program.entrypoint)
    if program.user:
        config["User"] = program.user
    if not program.network:
        config["NetworkDisabled"] = True
    return config


def _host_config(running: RunningProgram[Container]) -> dict[str, Any]:
    program = running.program
    return {
        "Mounts": _mounts(running),
        "NetworkMode": "default" if program.network else "none",
        "Privileged": False,
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        # What it prints comes by the attached stream; the engine's disk keeps no copy.
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        **_limits(running),
    }


def _gpus(numbers: Sequence[int]) -> dict[str, Any]:
    return {"DeviceIDs": [str(one) for one in numbers], "Capabilities": [["gpu"]]}


def _limits(running: RunningProgram[Container]) -> dict[str, int]:
    limits, config = running.program.limits, dict[str, int]()
    if running.memory_bytes is not None:
        # Both: otherwise it gets as much again of swap.
        config["Memory"] = config["MemorySwap"] = running.memory_bytes
    if limits.cpus is not None:
        config["NanoCpus"] = int(limits.cpus * _NANO)
    if limits.pids is not None:
        config["PidsLimit"] = limits.pids
    return config


def _mounts(running: RunningProgram[Container]) -> list[dict[str, Any]]:
    mounts = [_mount(running.folder, WORK), _mount(running.report, REPORT)]
    if running.secrets is not None:
        mounts.append(_mount(running.secrets, SECRETS) | {"ReadOnly": True})
    return mounts


def _mount(source: Path, target: str) -> dict[str, Any]:
    # Private: what the container mounts there is not seen on the machine, nor the other way round.
    options = {"Propagation": "rprivate"}
    return {"Type": "bind", "Source": str(source), "Target": target, "BindOptions": options}


def _environ(running: RunningProgram[Container], owner: Owner) -> dict[str, str]:
    """Its variables: paths of this machine are said as they are inside."""
    inside = {str(running.folder): WORK, str(running.report): REPORT}
    if running.secrets is not None:
        inside[str(running.secrets)] = SECRETS
    ours = {name: _moved(value, inside) for name, value in running.environ.items()}
    # By the last one the worker finds its processes if their host is killed (`left_behind`).
    return {**running.program.env, **ours, HOST_VARIABLE: owner.process}


def _moved(value: str, inside: Mapping[str, str]) -> str:
    for outside, there in inside.items():
        if value == outside or value.startswith(f"{outside}/"):
            return there + value.removeprefix(outside)
    return value


def _labels(running: RunningProgram[Container], owner: Owner) -> dict[str, str]:
    job, token = running.assignment.key
    return {
        FLEET: owner.fleet,
        WORKER: owner.worker,
        PROCESS: owner.process,
        JOB: str(job),
        TOKEN: str(token),
    }
