"""Which store a URL leads to, who may listen where, how workers are started."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from longshore.config import WorkerSettings, load
from longshore.errors import ConfigError
from longshore.executors.scratch import Room
from longshore.model.worker import AHEAD_POOLS, POOLS, PROGRAM_POOLS, Isolation, Pool
from longshore.run import compose
from longshore.run.pools import make_executors, pools_of
from longshore.run.ready import Ready


@pytest.mark.parametrize(
    "url",
    [
        "",
        "longshore.db",
        "sqlite:longshore.db",
        "sqlite://longshore.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "mysql://host/database",
        "postgresql:host",
    ],
)
def test_what_is_not_the_url_of_a_store_is_answered_with_what_one_looks_like(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose.make_store(url)
    assert "sqlite:///relative/file.db, sqlite:////absolute/file.db" in str(caught.value)
    assert "postgresql://user@host:5432/database" in str(caught.value)


async def test_a_sqlite_url_names_a_file_from_here_or_from_the_root(tmp_path: Path) -> None:
    await compose.make_store("sqlite:///here/a.db").migrate()
    await compose.make_store(f"sqlite:///{tmp_path}/there/b.db").migrate()
    assert (tmp_path / "here" / "a.db").is_file()
    assert (tmp_path / "there" / "b.db").is_file()


def test_postgres_without_its_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("longshore.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "asyncpg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError) as caught:
        compose.make_store("postgresql://me:secret@host/db")
    assert "pip install 'longshore[postgres]'" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("slashes", ["", "/", "//", "///"])
def test_password_in_a_wrong_url_is_not_shown(slashes: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose.make_store(f"postgresql:{slashes}me:S3cret#PW/x@host/db")
    assert "***@host/db" in str(caught.value)
    assert "S3cret" not in str(caught.value)
    assert "PW" not in str(caught.value)


class Served(Exception):
    """A process began to serve: that is all a test wanted to see."""


def serve(ready: Ready) -> None:
    raise Served


async def test_migrate_makes_the_store_and_says_the_versions(tmp_path: Path) -> None:
    config = load(environ={"LONGSHORE_STORE": f"sqlite:///{tmp_path}/longshore.db"})
    before, after = await compose.migrate(config)
    assert before == 0 < after
    assert await compose.migrate(config) == (after, after)


async def test_only_the_default_store_may_make_its_folder(tmp_path: Path) -> None:
    await compose.migrate(load())
    assert (tmp_path / ".longshore" / "longshore.db").is_file()
    with pytest.raises(ConfigError, match="there is no folder tpm; make it, or correct the path"):
        await compose.migrate(load(environ={"LONGSHORE_STORE": "sqlite:///tpm/longshore.db"}))
    assert not (tmp_path / "tpm").exists()


@pytest.mark.parametrize(
    ("connect", "frontend", "hint"),
    [
        ("127.0.0.1:7702", "127.0.0.1:7702", "Port 7702 is where clients connect"),
        ("127.0.0.1:99", "127.0.0.1:99", "Port 99 is where clients connect"),
        ("127.0.0.1:98", "127.0.0.1:99", "Workers connect to the port that its --backend names"),
    ],
)
def test_a_worker_without_an_answer_is_told_which_port_is_whose(
    connect: str, frontend: str, hint: str
) -> None:
    config = load(environ={"LONGSHORE_WORKER_CONNECT": connect, "LONGSHORE_FRONTEND": frontend})
    assert hint in compose.port_advice(config)


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "10.0.0.1", "[::]", "db.example"])
async def test_listening_beyond_this_machine_without_keys_is_refused(host: str) -> None:
    config = load(environ={"LONGSHORE_BACKEND": host})
    with pytest.raises(ConfigError, match=r"backend .* can be reached from other machines"):
        await compose.run_dispatcher(config, lambda ready: None)


async def test_a_dispatcher_makes_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    config = load({"store": url, "backend": "127.0.0.1:0", "frontend": "127.0.0.1:0"})
    with pytest.raises(Served):
        await compose.run_dispatcher(config, serve)
    before, after = await compose.migrate(config)
    assert before == after


async def test_a_dispatcher_migrates_no_store_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "none.db").touch()
    config = load(environ={"LONGSHORE_STORE": f"sqlite:///{tmp_path}/none.db"})
    with pytest.raises(Exception, match="run `longshore migrate` first"):
        await compose.run_dispatcher(config, lambda ready: None)


async def test_a_worker_has_an_executor_with_its_slots_for_every_pool() -> None:
    functions = {"slots": "3", "processes": "4", "threads": "5"}
    programs = {"commands": "6", "containers": "7", "engine": "unix:///engine.sock"}
    given = {"app": "jobs:app", **functions, **programs}
    executors = make_executors(load(given, environ={}), Room("", -1), print, print)
    slots = {pool: executor.slots for pool, executor in executors.items()}
    assert slots == {
        Pool.COROUTINE: 3,
        Pool.PROCESS: 4,
        Pool.THREAD: 5,
        Pool.COMMAND: 6,
        Pool.CONTAINER: 7,
    }
    assert set(executors) == set(Pool)


async def test_a_worker_without_an_engine_runs_no_containers() -> None:
    config = load({"app": "jobs:app", "engine": "off", "containers": "7"}, environ={})
    assert pools_of(config)[Pool.CONTAINER] == 0


async def test_a_worker_without_an_app_has_the_pools_of_programs_only() -> None:
    config = load({"exec": "yes", "engine": "off"}, environ={})
    assert {*pools_of(config)} == PROGRAM_POOLS


def test_every_pool_has_its_facts_its_isolation_and_its_setting() -> None:
    assert tuple(POOLS) == tuple(Pool)
    assert {*get_args(Isolation)} == {*Pool} - PROGRAM_POOLS
    assert {Pool.PROCESS, Pool.THREAD, Pool.COMMAND} == AHEAD_POOLS
    assert {facts.slots for facts in POOLS.values()} <= {*WorkerSettings.__struct_fields__}


def test_a_worker_is_started_with_what_it_does_not_read_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.toml").write_text("slots = 5\nprocesses = 3\n")
    monkeypatch.setenv("LONGSHORE_TARGET", "gpu")
    config = load({"slots": "100", "app": "a:b"}, ["drain_s=2m"], file="other.toml")
    command = compose.worker_command(config, "tcp://127.0.0.1:1")
    assert command[:6] == [sys.executable, "-m", "longshore", "worker", "--connect", command[5]]
    overrides = [value for flag, value in pairwise(command) if flag == "--set"]
    assert sorted(overrides) == ["app=a:b", "drain_s=120.0", "slots=100"]
    as_started = load(overrides=overrides, file=command[command.index("--config") + 1])
    assert as_started.worker == config.worker
    assert (as_started.app, as_started.target) == ("a:b", "gpu")
