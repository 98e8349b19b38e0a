"""What goes wrong at start-up says so in one line, without a traceback, and with an exit code."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from longshore.testing.processes import run
from longshore.testing.servers import free_port
from tests.system.conftest import Fleet


def failing(*words: str, cwd: Path | None = None, code: int = 2) -> str:
    done = run(*words, cwd=cwd)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


def test_a_port_that_is_taken(module_fleet: Fleet) -> None:
    taken = module_fleet.processes[0].facts["backend"].removeprefix("tcp://")
    words = ["dispatcher", "--store", module_fleet.store, "--backend", taken]
    assert f"tcp://{taken} is taken" in failing(*words)


def test_a_store_url_that_is_none() -> None:
    message = failing("dispatcher", "--store", "mysql://localhost/x")
    assert "'mysql://localhost/x' is not the URL of a store" in message
    assert "postgresql://user@host:5432/database" in message


def test_a_database_that_does_not_answer() -> None:
    url = f"postgresql://postgres:secret@127.0.0.1:{free_port()}/x"
    message = failing("dispatcher", "--store", url, code=4)
    assert "secret" not in message


def test_a_store_that_was_never_migrated(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    message = failing("dispatcher", "--store", f"sqlite:///{tmp_path}/new.db")
    assert "longshore migrate" in message


def test_a_store_made_by_a_newer_version(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    run("migrate", "--store", url)
    with sqlite3.connect(tmp_path / "new.db") as connection:
        (table,) = connection.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE '%version%' AND type = 'table'"
        ).fetchone()
        connection.execute(f"UPDATE {table} SET version = 999")
    connection.close()
    assert "newer" in failing("dispatcher", "--store", url)


def test_an_app_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "hollow.py").write_text("x = 1\n")
    message = failing("worker", "--app", "broken:app", cwd=tmp_path)
    assert "nothing_of_that_name" in message
    assert "no module 'absent'" in failing("worker", "--app", "absent:app")
    assert "app" in failing("worker", "--app", "hollow:app", cwd=tmp_path)


def test_no_dispatcher_to_talk_to() -> None:
    connect = f"tcp://127.0.0.1:{free_port()}"
    words = ["jobs", "--connect", connect, "--set", "request_timeout_s=0.5"]
    message = failing(*words, code=4)
    assert connect in message
    assert "longshore up" in message


def test_a_job_that_does_not_exist(module_fleet: Fleet) -> None:
    frontend = module_fleet.processes[0].facts["frontend"]
    assert "no job 4711" in failing("job", "4711", "--connect", frontend, code=3)
    assert "is not a job" in failing("job", "nonsense", "--connect", frontend)


def test_arguments_that_do_not_fit(module_fleet: Fleet) -> None:
    connect = ["--connect", module_fleet.processes[0].facts["frontend"]]
    assert "needs argument 'b'" in failing("submit", "add", "a=1", *connect)
