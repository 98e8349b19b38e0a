"""Who a worker is, and what its agent knows of an attempt that runs."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from longshore.model.attempt import Assignment
from longshore.model.worker import MachineInfo
from longshore.ports import Executor
from longshore.wire.messages import PROTOCOL_VERSION, Ready


class Identity(Struct, frozen=True, kw_only=True):
    """Who a worker is, apart from its id."""

    name: str
    host: str
    pid: int
    target: str = ""
    queues: tuple[str, ...] = ()
    process: str = ""
    gateway: bool = False
    """Whether it is a worker of a gateway."""
    machine: MachineInfo = MachineInfo()
    resources: dict[str, float] = {}
    """What its jobs share (`core.resources`)."""
    first_devices: dict[str, float] = {}
    """With which number its devices of a name begin, if that is not 0."""

    def ready(self, worker: UUID, executors: Mapping[str, Executor], *, outlived: bool) -> Ready:
        """What the worker says of itself under this id.

        If something outlives its agent (`outlived`), only the lease tells that it is gone.
        """
        kinds = {
            kind: info for executor in executors.values() for kind, info in executor.kinds.items()
        }
        return Ready(
            v=PROTOCOL_VERSION,
            worker=worker,
            name=self.name,
            host=self.host,
            pid=self.pid,
            kinds=kinds,
            queues=self.queues,
            target=self.target,
            process="" if outlived else self.process,
            gateway=self.gateway,
            machine=self.machine,
            resources=self.resources,
            pools={pool: executor.slots for pool, executor in executors.items()},
        )


class Begun(Struct, frozen=True, gc=False):
    """An attempt that its executor runs, and since when.

    It may have to wait for its process all the same; then `at` is put right when it really begins.
    """

    assignment: Assignment
    at: float
