"""Who a worker is, and what its agent knows of an attempt that runs."""

from __future__ import annotations

from msgspec import Struct

from longshore.model.attempt import Assignment
from longshore.model.worker import MachineInfo


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


class Begun(Struct, frozen=True, gc=False):
    """An attempt that its executor runs, and since when.

    It may have to wait for its process all the same; then `at` is put right when it really begins.
    """

    assignment: Assignment
    at: float
