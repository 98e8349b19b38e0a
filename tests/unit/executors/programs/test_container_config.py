"""What an engine is told of a container, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from longshore.executors.host.programs.container_config import Owner, config_of
from longshore.executors.host.programs.folders import Folders, variables
from longshore.model.attempt import DeviceNumbers
from longshore.model.program import Container

from .ship import Attempt, shell


def told(
    folder: Path, program: Container, devices: DeviceNumbers | None = None, *, gpus: bool = False
) -> dict[str, Any]:
    """What an engine is told."""
    running = Attempt(folder, program).running
    assignment = structs.replace(running.assignment, devices=devices or {})
    folders = Folders(folder, running.folder, running.report)
    environ = variables(assignment, folders)
    given = structs.replace(running, assignment=assignment, environ=environ)
    return config_of(given, Owner("this process"), gpus=gpus)


def test_engine_gives_a_container_the_gpus_that_its_attempt_has(tmp_path: Path) -> None:
    devices = {"gpu": (1, 3), "press": (0,)}
    config = told(tmp_path, shell("true"), devices, gpus=True)
    assert config["HostConfig"]["DeviceRequests"] == [
        {"DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]}
    ]
    assert {"LONGSHORE_DEVICE_GPU=1,3", "LONGSHORE_DEVICE_PRESS=0"} <= {*config["Env"]}
    # Inside, those two are 0 and 1.
    assert not any(one.startswith("CUDA_VISIBLE_DEVICES") for one in config["Env"])


def test_without_the_setting_a_container_is_only_told_its_gpus(tmp_path: Path) -> None:
    config = told(tmp_path, shell("true"), {"gpu": (1,)})
    assert "DeviceRequests" not in config["HostConfig"]
    assert "CUDA_VISIBLE_DEVICES=1" in config["Env"]


def test_container_without_gpus_gets_none(tmp_path: Path) -> None:
    config = told(tmp_path, shell("true"), {"press": (0,)}, gpus=True)
    assert "DeviceRequests" not in config["HostConfig"]
