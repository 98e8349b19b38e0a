"""Commands with files: inputs are brought, outputs become versions, once for each job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import longshore
from longshore.errors import JobFailed
from longshore.testing.processes import await_true, run, settings
from tests.system.conftest import APPS
from tests.system.test_files import Dock


@pytest.fixture
def dock(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dock]:
    """`longshore up` with a worker of the tables app, and the fileset `words`."""
    monkeypatch.setenv("PYTHONPATH", str(APPS), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    made = Dock(tmp_path, store_url, "--app", "tables:app")
    monkeypatch.chdir(tmp_path)
    words = tmp_path / "words"
    words.mkdir()
    (words / "words.txt").write_text("hello harbour\n")
    made.filesets("push", "words", str(words))
    yield made
    made.up.close()


@pytest.fixture
def app(dock: Dock) -> Iterator[longshore.App]:
    with longshore.App("client", connect=dock.up.facts["frontend"]) as client:
        yield client


def test_a_command_reads_a_version_and_makes_another(
    dock: Dock, app: longshore.App, tmp_path: Path
) -> None:
    done = app.submit_by_name("upper", {"name": "loud"})
    done.result(60)
    (version,) = dock.filesets("ls", "upper")["versions"]
    assert (version["version"], version["files"], version["job"]) == (1, 1, str(done.id))
    dock.filesets("pull", "upper", "copy")
    assert (tmp_path / "copy/loud.txt").read_text() == "HELLO HARBOUR\n"


def test_a_version_that_cannot_be_removed_is_an_error_that_says_why(
    store_url: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "one").touch()
    dock = Dock(tmp_path, store_url, "--exec", *settings(engine="off"))
    with closing(dock.up):
        for _ in range(2):
            dock.filesets("push", "data", str(data))
        begun = tmp_path / "begun"
        script = f"touch {begun}; sleep 600"
        to = ["--connect", dock.up.facts["frontend"]]
        run("exec", "--detach", "--input", "data@1", *to, "--", "sh", "-c", script)
        await_true(begun.exists, "the command has begun")
        told = dock.filesets("rm", "data@1", "data@2", code=2)
        assert "data@1 is the input of a job that has not ended" in told
        assert [one["version"] for one in dock.filesets("ls", "data")["versions"]] == [1]
        assert "version 2" in dock.filesets("rm", "data@2", code=3)
        assert dock.filesets("rm", "data", "--keep", "0") == {"removed": [], "left": ["data@1"]}
        assert run("cancel", "1", *to).returncode == 0


def test_what_a_job_does_to_its_input_reaches_nobody(
    dock: Dock, app: longshore.App, tmp_path: Path
) -> None:
    with pytest.raises(JobFailed, match="'out' is a link"):
        app.submit_by_name("spoil", {}).result(60)
    app.submit_by_name("upper", {"name": "after"}).result(60)
    dock.filesets("pull", "upper", "copy")
    assert (tmp_path / "copy/after.txt").read_text() == "HELLO HARBOUR\n"
    assert [one["name"] for one in dock.filesets("ls")["filesets"]] == ["upper", "words"]


def test_a_missing_output_fails_and_says_what_was_there(dock: Dock, app: longshore.App) -> None:
    with pytest.raises(JobFailed, match=r"nothing matches '\*\.csv'; the folder is empty") as error:
        app.submit_by_name("nothing", {}).result(60)
    assert error.value.reason == "output_missing"


def test_files_of_a_poisonous_job_are_published_once(dock: Dock, app: longshore.App) -> None:
    with pytest.raises(JobFailed, match="signal 11") as error:
        app.submit_by_name("segfault", {}).result(60)
    assert error.value.reason == "poisonous"
    (version,) = dock.filesets("ls", "rests")["versions"]
    assert (version["version"], version["partial"], version["files"]) == (1, True, 1)


def test_files_of_a_failed_job_are_published_as_partial(dock: Dock, app: longshore.App) -> None:
    with pytest.raises(JobFailed, match="exited with code 3"):
        app.submit_by_name("partial", {}).result(60)
    (version,) = dock.filesets("ls", "parts")["versions"]
    assert (version["partial"], version["files"]) == (True, 1)
