"""Documents of the Etcd Job Queue: what is taken of them, what is refused, what is shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from msgspec import structs

from longshore.errors import InvalidInput, WrongState
from longshore.model.job import HistoryEntry, Job, JobError, JobState, Options, Reason
from longshore.model.log import LogLine
from longshore.model.program import CONTAINER_KIND, Container, Input, Limits, Output
from longshore.model.worker import MachineInfo, WorkerInfo, WorkerView
from longshore.payload.etcdq import arguments, job_document, read_job, worker_document

CONFIG = {"Image": "tools:1", "Cmd": ["wc", "-l"], "Env": ["A=1", "B=x=y"]}
SEED = {
    "Container": {"Config": CONFIG},
    "Fileset": {
        "Input": {"Name": "foo", "Patterns": ["*.py", "bin/*"]},
        "Output": {"Name": "foo_result", "Patterns": ["**/*.dat"]},
    },
    "Owner": "",
    "States": [{"State": "QUEUED", "Step": "", "Date": "2015-01-31T12:00:00Z"}],
}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def read(**parts: Any) -> Container:
    return read_job(json.dumps({**SEED, **parts}).encode())


def refused(**parts: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(**parts)
    return str(caught.value)


def test_a_document_of_the_seed_is_a_container() -> None:
    assert read() == Container(
        image="tools:1",
        command=("wc", "-l"),
        env={"A": "1", "B": "x=y"},
        inputs=(Input(fileset="foo", patterns=("*.py", "bin/*")),),
        outputs=(Output(fileset="foo_result", patterns=("**/*.dat",)),),
    )


def test_all_that_a_config_may_say_is_taken() -> None:
    config = {
        **CONFIG,
        "Entrypoint": ["/bin/sh", "-c"],
        "Cmd": "echo hi",
        "User": "sailor",
        "WorkingDir": "data",
        "Memory": 1024,
        "NetworkDisabled": False,
        "Hostname": "box",
        "Tty": False,
    }
    found = read(Container={"Config": config})
    assert found.entrypoint == ("/bin/sh", "-c")
    assert found.command == ("/bin/sh", "-c", "echo hi")
    assert (found.user, found.folder, found.network) == ("sailor", "data", True)
    assert found.limits == Limits(memory_bytes=1024)


@pytest.mark.parametrize(
    "parts",
    [
        {"States": []},
        {"States": None, "Owner": None, "Result": None},
        {"Result": {"Status": "SUCCESS", "Info": ""}, "Owner": "w1", "Comment": "kept by us"},
    ],
)
def test_what_only_a_running_system_writes_may_be_empty_or_missing(parts: dict[str, Any]) -> None:
    assert read(**parts) == read()


@pytest.mark.parametrize(
    "fileset",
    [None, {}, {"Input": None, "Output": None}, {"Output": {"Name": "", "Patterns": ["*"]}}],
)
def test_without_a_name_nothing_is_pulled_and_nothing_pushed(fileset: object) -> None:
    found = read(Fileset=fileset)
    assert (found.inputs, found.outputs) == ((), ())


def test_patterns_are_optional_and_mean_everything() -> None:
    found = read(Fileset={"Input": {"Name": "foo"}, "Output": {"Name": "bar", "Patterns": []}})
    assert found.inputs[0].patterns == ("**",)
    assert found.outputs[0].patterns == ("**",)


def test_what_is_no_document_is_refused_with_an_example() -> None:
    for text in (b"", b"{", b"[]", b'{"Container": {}}', b'{"Container": {"Config": ""}}', b"\xff"):
        with pytest.raises(InvalidInput, match=r"no job of the Etcd Job Queue.*it looks like"):
            read_job(text)
    assert "no name of an image" in refused(Container={"Config": {"Image": ""}})


@pytest.mark.parametrize(
    ("container", "named"),
    [
        ({"Config": {**CONFIG, "Volumes": {"/host": {}}}}, "Container.Config.Volumes"),
        ({"Config": {**CONFIG, "Tty": True}}, "Container.Config.Tty"),
        ({"Config": CONFIG, "HostConfig": {"Privileged": True}}, "HostConfig.Privileged"),
        ({"Config": CONFIG, "HostConfig": {"Binds": ["/:/host"]}}, "HostConfig.Binds"),
        ({"Config": CONFIG, "HostConfig": {"NetworkMode": "host"}}, "HostConfig.NetworkMode"),
        ({"Config": CONFIG, "HostConfig": {"PidMode": "container:x"}}, "HostConfig.PidMode"),
        *(
            ({"Config": CONFIG, "HostConfig": {name: value}}, f"Container.HostConfig.{name}")
            for name, value in {
                "Mounts": [{"Type": "bind", "Source": "/data", "Target": "/work"}],
                "VolumesFrom": ["other"],
                "DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}],
                "CpuQuota": 50_000,
                "CpusetCpus": "0",
                "Ulimits": [{"Name": "nofile", "Soft": 10, "Hard": 10}],
                "ShmSize": 1,
                "Runtime": "nvidia",
                "SecurityOpt": ["seccomp=unconfined"],
                "NetworkMode": "office",
                "RestartPolicy": {"Name": "always", "MaximumRetryCount": 0},
                "MemorySwap": -1,
                "ReadonlyRootfs": True,
                "Tmpfs": {"/tmp": ""},
                "Dns": ["10.0.0.1"],
                "SomethingNew": 1,
            }.items()
        ),
    ],
)
def test_what_asks_for_more_is_refused_by_its_name(container: object, named: str) -> None:
    assert named in refused(Container=container)


def test_limits_and_a_network_of_the_host_config_are_taken() -> None:
    host = {
        "Memory": 1024,
        "MemorySwap": 1024,
        "NanoCpus": 1_500_000_000,
        "PidsLimit": 20,
        "NetworkMode": "bridge",
        "LogConfig": {"Type": "json-file", "Config": {}},
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "ShmSize": 67_108_864,
        "Runtime": "runc",
        "Binds": None,
    }
    found = read(Container={"Config": CONFIG, "HostConfig": host})
    assert found.limits == Limits(memory_bytes=1024, cpus=1.5, pids=20)
    assert found.network
    unlimited = {"Memory": 0, "NanoCpus": 0, "PidsLimit": -1, "NetworkMode": "none"}
    found = read(Container={"Config": CONFIG, "HostConfig": unlimited})
    assert (found.limits, found.network) == (Limits(), False)


@pytest.mark.parametrize(
    ("disabled", "mode", "network"),
    [
        (None, None, False),
        (None, "default", True),
        (None, "none", False),
        (True, "bridge", False),
        (False, None, True),
        (False, "none", False),
    ],
)
def test_network_is_there_only_if_the_document_says_so(
    disabled: bool | None, mode: str | None, network: bool
) -> None:
    config = {**CONFIG, "NetworkDisabled": disabled}
    assert (
        read(Container={"Config": config, "HostConfig": {"NetworkMode": mode}}).network == network
    )


def test_two_limits_that_differ_are_refused() -> None:
    config = {**CONFIG, "Memory": 2048}
    assert "two limits" in refused(Container={"Config": config, "HostConfig": {"Memory": 1024}})


def test_variables_that_only_longshore_sets_are_left_out_of_what_it_has_shown_alone() -> None:
    ours = ["A=1", "LONGSHORE_JOB=x", "CUDA_VISIBLE_DEVICES=1"]
    config = {**CONFIG, "Env": ours}
    assert set(read(Container={"Config": config}).env) == {
        "A",
        "LONGSHORE_JOB",
        "CUDA_VISIBLE_DEVICES",
    }
    shown = {**config, "Labels": {"longshore.job": "018bcfe5"}}
    assert read(Container={"Config": shown}).env == {"A": "1"}


# what is shown


def job(state: JobState = JobState.SUCCEEDED, **more: Any) -> Job:
    args = msgspec.msgpack.encode(arguments(read()))
    history = (
        HistoryEntry(JobState.READY, NOON),
        HistoryEntry(JobState.RUNNING, NOON + timedelta(seconds=1)),
        HistoryEntry(JobState.SUCCEEDED, NOON + timedelta(seconds=9)),
    )
    fields: dict[str, Any] = {
        **dict.fromkeys(
            ("unique_key", "run_at", "started_at", "ended_at", "worker", "result", "error")
        ),
        "id": uuid4(),
        "number": 14,
        "kind": CONTAINER_KIND,
        "queue": "default",
        "target": "",
        "priority": 0,
        "state": state,
        "args": args,
        "options": Options(),
        "created_at": NOON,
        "round": 1,
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "token": 1,
        "history": history,
    }
    return Job(**{**fields, **more})


def said(text: str, stream: str = "step", at_s: float = 2) -> LogLine:
    at = NOON + timedelta(seconds=at_s)
    return LogLine(token=1, seq=1, attempt=1, at=at, stream=stream, text=text)


def test_a_job_is_shown_with_its_steps_in_order_and_its_result() -> None:
    log = [
        said("allocated"),
        said("running", at_s=3),
        said("finished", at_s=10),
        said("x", "stdout"),
    ]
    document = job_document(job(), log, "worker-7")
    assert document["Owner"] == "worker-7"
    assert document["Container"]["Config"]["Image"] == "tools:1"
    assert document["Container"]["Config"]["Env"] == ["A=1", "B=x=y"]
    assert document["Fileset"] == SEED["Fileset"]
    assert [(one["State"], one["Step"]) for one in document["States"]] == [
        ("QUEUED", ""),
        ("STARTED", ""),
        ("STARTED", "allocated"),
        ("STARTED", "running"),
        ("STARTED", "finished"),
        ("FINISHED", ""),
    ]
    assert document["States"][0]["Date"] == "2026-01-31T12:00:00Z"
    assert document["Result"] == {"Status": "SUCCESS", "Info": "container exited with code 0"}


def test_a_failure_reads_like_one() -> None:
    error = JobError(Reason.EXITED, "container exited with code 3", exit_code=3)
    document = job_document(job(JobState.FAILED, error=error), [], "w")
    assert document["Result"] == {"Status": "FAILURE", "Info": "container exited with code 3"}


def test_a_job_that_waits_has_no_owner_and_no_result() -> None:
    document = job_document(job(JobState.READY, history=()), [], "last-owner")
    assert document["Owner"] == ""
    assert "Result" not in document
    assert document["States"] == [{"State": "QUEUED", "Step": "", "Date": "2026-01-31T12:00:00Z"}]


def test_the_engines_description_stands_beside_the_config() -> None:
    described = json.dumps({"Id": "abc", "State": {"ExitCode": 0}, "Config": {"Image": "tools:1"}})
    document = job_document(job(), [said(described, "engine")], "w")
    assert document["Container"] == {
        "Config": {"Image": "tools:1"},
        "Id": "abc",
        "State": {"ExitCode": 0},
    }


def test_a_long_description_comes_in_several_lines() -> None:
    described = json.dumps({"Id": "abc", "Config": {"Image": "tools:1"}})
    first, last = described[:20], described[20:]
    lost = structs.replace(said('{"Id": "old"}', "engine"), token=7, attempt=0)
    log = [lost, said(first, "engine"), said("saved", "stdout"), said(last, "engine")]
    document = job_document(job(), log, "w")
    assert document["Container"] == {"Id": "abc", "Config": {"Image": "tools:1"}}


def test_a_description_or_a_record_that_cannot_be_read_spoils_nothing() -> None:
    document = job_document(job(), [said('{"Id": "a…', "engine")], "w")
    assert document["Container"]["Config"]["Image"] == "tools:1"
    assert job_document(job(args=b"\xc1"), [said("{}", "engine")], "w")["Owner"] == "w"


def test_what_is_no_container_is_refused() -> None:
    with pytest.raises(WrongState, match=r"job 14 is of kind 'resize'"):
        job_document(job(kind="resize"), [], "w")


def test_what_is_shown_can_be_submitted_again() -> None:
    document = job_document(job(), [], "w")
    assert read_job(json.dumps(document).encode()) == read()


def test_limits_are_shown_of_a_job_that_has_not_run() -> None:
    container = {"Config": CONFIG, "HostConfig": {"NanoCpus": 500_000_000, "PidsLimit": 7}}
    args = msgspec.msgpack.encode(arguments(program := read(Container=container)))
    document = job_document(job(JobState.READY, args=args), [], "w")
    assert read_job(json.dumps(document).encode()) == program
    assert program.limits == Limits(cpus=0.5, pids=7)


def view(**more: Any) -> WorkerView:
    info = WorkerInfo(
        id=UUID(int=7), name="dock-1:99", host="dock-1", machine=MachineInfo("i-1", "10.0.0.7")
    )
    fields: dict[str, Any] = {
        "info": info,
        "session": 1,
        "dispatcher": UUID(int=1),
        "alive": True,
        "draining": False,
        "running": {},
        "started_at": NOON,
        "attended_at": NOON,
        "seen_at": NOON,
        "cpu_percent": 20.5,
        "memory_percent": 10.0,
    }
    return WorkerView(**{**fields, **more})


def test_a_worker_is_shown_with_its_job_by_number() -> None:
    assert worker_document(view(), 14) == {
        "Name": "dock-1:99",
        "InstanceId": "i-1",
        "PrivateIp": "10.0.0.7",
        "PublicIp": "",
        "Job": "14",
        "Heartbeat": "2026-01-31T12:00:00Z",
        "Stats": {"Cpu": 20.5, "Mem": 10.0},
        "Status": "ALIVE",
    }


def test_an_idle_worker_has_no_job_and_a_lost_one_is_dead() -> None:
    document = worker_document(view(alive=False, seen_at=None, cpu_percent=None), None)
    assert (document["Job"], document["Status"]) == ("", "DEAD")
    assert document["Stats"]["Cpu"] == 0.0
