"""What an engine is told of a container, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from longshore.executors.host.programs.container_config import Owner, config_of
from longshore.executors.host.programs.folders import Folders, variables
from longshore.model.attempt import HeldDevices
from longshore.model.program import Container, Limits

from .ship import Attempt, shell


def told(
    folder: Path, program: Container, devices: tuple[HeldDevices, ...] = (), *, gpus: bool = False
) -> dict[str, Any]:
    """What an engine is told."""
    running = Attempt(folder, program).running
    assignment = structs.replace(running.assignment, devices=devices)
    folders = Folders(folder, running.folder, running.report)
    environ = variables(assignment, folders)
    given = structs.replace(running, assignment=assignment, environ=environ)
    return config_of(given, Owner("this process"), gpus=gpus)


def test_limits_are_told_in_the_units_of_an_engine(tmp_path: Path) -> None:
    limits = Limits(memory_bytes=64 * 1024**2, cpus=1.5, pids=20)
    host = told(tmp_path, shell("true", limits=limits))["HostConfig"]
    assert (host["NanoCpus"], host["PidsLimit"]) == (1_500_000_000, 20)
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024**2
    assert (
        not {"NanoCpus", "PidsLimit", "Memory"} & told(tmp_path, shell("true"))["HostConfig"].keys()
    )


def test_network_is_there_only_if_it_is_asked_for(tmp_path: Path) -> None:
    config = told(tmp_path, shell("true"))
    assert (config["NetworkDisabled"], config["HostConfig"]["NetworkMode"]) == (True, "none")
    config = told(tmp_path, shell("true", network=True))
    assert "NetworkDisabled" not in config
    assert config["HostConfig"]["NetworkMode"] == "default"


def test_secrets_are_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    running = Attempt(tmp_path, shell("true"), secrets=tmp_path / "secrets").running
    config = config_of(running, Owner("this process"))
    [mount] = [
        one for one in config["HostConfig"]["Mounts"] if one["Target"] == "/longshore-secrets"
    ]
    assert (mount["Source"], mount["ReadOnly"]) == (str(tmp_path / "secrets"), True)
    assert "LONGSHORE_SECRETS=/longshore-secrets" in config["Env"]
    assert all(one.get("ReadOnly") is None for one in config["HostConfig"]["Mounts"][:2])


def test_engine_gives_a_container_the_gpus_that_its_attempt_has(tmp_path: Path) -> None:
    devices = (HeldDevices("gpu", (1, 3)), HeldDevices("press", (0,)))
    config = told(tmp_path, shell("true"), devices, gpus=True)
    assert config["HostConfig"]["DeviceRequests"] == [
        {"DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]}
    ]
    assert {"LONGSHORE_DEVICE_GPU=1,3", "LONGSHORE_DEVICE_PRESS=0"} <= {*config["Env"]}
    # Inside, those two are 0 and 1.
    assert not any(one.startswith("CUDA_VISIBLE_DEVICES") for one in config["Env"])


def test_without_the_setting_a_container_is_only_told_its_gpus(tmp_path: Path) -> None:
    config = told(tmp_path, shell("true"), (HeldDevices("gpu", (1,)),))
    assert "DeviceRequests" not in config["HostConfig"]
    assert "CUDA_VISIBLE_DEVICES=1" in config["Env"]


def test_container_without_gpus_gets_none(tmp_path: Path) -> None:
    config = told(tmp_path, shell("true"), (HeldDevices("press", (0,)),), gpus=True)
    assert "DeviceRequests" not in config["HostConfig"]
