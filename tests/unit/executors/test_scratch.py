"""An attempt's scratch folder is gone after it, however it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from longshore.errors import ConfigError
from longshore.executors import scratch
from longshore.model.reports import CrashReport, FailureReport, SuccessReport
from longshore.testing.processes import await_true

from .stand import Stand

APP = "scratch_app:app"
POOLS = pytest.mark.parametrize("kind", ["keep", "keep_async", "keep_in_thread"])


async def opened(stand: Stand, kind: str, room: Path) -> None:
    ways = {
        "keep": stand.open_child,
        "keep_async": stand.open_coroutine,
        "keep_in_thread": stand.open_thread,
    }
    await ways[kind](app=APP, scratch=str(room), abort_grace_s=1.0)


def await_empty(room: Path) -> None:
    await_true(lambda: os.listdir(room) == [], "nothing is left")


@POOLS
@pytest.mark.parametrize("how", ["return", "raise"])
async def test_it_is_gone_after_an_end(stand: Stand, tmp_path: Path, kind: str, how: str) -> None:
    await opened(stand, kind, tmp_path)
    report = await stand.run(kind, how=how)
    assert isinstance(report, FailureReport if how == "raise" else SuccessReport)
    folder = f"{tmp_path}/{report.job}-{report.token}"
    assert folder in str(report)
    await_empty(tmp_path)


@POOLS
async def test_it_is_gone_after_an_abort(stand: Stand, tmp_path: Path, kind: str) -> None:
    await opened(stand, kind, tmp_path)
    attempt = stand.start(kind, how="wait")
    assert os.listdir(await stand.step_of(attempt)) == ["file"]
    stand.abort(attempt)
    await stand.report_of(attempt)
    await_empty(tmp_path)


@POOLS
async def test_it_is_gone_after_a_crash(stand: Stand, tmp_path: Path, kind: str) -> None:
    await opened(stand, kind, tmp_path)
    assert isinstance(await stand.run(kind, how="die"), CrashReport)
    await_empty(tmp_path)


async def test_an_end_is_told_even_if_the_folder_cannot_be_removed(
    stand: Stand, tmp_path: Path
) -> None:
    await opened(stand, "keep_async", tmp_path)
    assert isinstance(await stand.run("keep_async", how="no threads"), SuccessReport)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A folder that is removed by who goes as deep as it takes: pytest does not."""
    yield tmp_path
    subprocess.run(["rm", "-rf", "--", str(tmp_path)], check=True)


async def test_folders_may_be_nested_as_deep_as_a_job_likes(stand: Stand, mine: Path) -> None:
    await opened(stand, "keep", mine)
    assert isinstance(await stand.run("keep", how="deep"), SuccessReport)
    await_empty(mine)


def test_what_may_not_be_written_to_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").touch()
    folder = tmp_path / "folder"
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "file").touch()
    (folder / "link").symlink_to(tmp_path / "others")
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0o500)
    scratch.remove(folder)
    link = tmp_path / "folder is a link"
    link.symlink_to(tmp_path / "others")
    scratch.remove(link)
    assert os.listdir(tmp_path) == ["others"]
    assert os.listdir(tmp_path / "others") == ["file"]


def test_a_folder_is_made_even_if_somebody_tidied_up_the_room(tmp_path: Path) -> None:
    scratch.settle(str(tmp_path / "room"))
    try:
        assert scratch.make(UUID(int=1), 1).is_dir()
    finally:
        scratch.settle("")


async def test_no_folder_is_made_for_who_does_not_ask(stand: Stand, tmp_path: Path) -> None:
    await opened(stand, "keep_async", tmp_path)
    await stand.result("leave_alone")
    assert os.listdir(tmp_path) == []


def test_a_workers_room_goes_with_it(tmp_path: Path) -> None:
    with scratch.room(str(tmp_path / "new")) as room:
        assert Path(room.path).parent == tmp_path / "new"
        (Path(room.path) / "job").mkdir()
    assert os.listdir(tmp_path / "new") == []


def test_the_room_of_a_killed_worker_is_removed_by_the_next(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom longshore.executors.scratch import room\n"
        "with room(sys.argv[1]) as made:\n    os.mkdir(made.path + '/job'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with scratch.room(str(tmp_path)) as room:
        assert os.listdir(tmp_path) == [Path(room.path).name] != [left.name]


def test_the_room_of_a_live_worker_is_left_alone(tmp_path: Path) -> None:
    with scratch.room(str(tmp_path)) as one, scratch.room(str(tmp_path)) as other:
        assert {Path(one.path).name, Path(other.path).name} == set(os.listdir(tmp_path))


def test_a_folder_of_a_test_kit_is_no_room_whatever_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (scratch.make(UUID(int=1), 1) / "lock").touch()
    scratch.sweep(tmp_path)
    assert len(os.listdir(tmp_path)) == 1


def test_what_is_no_room_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "longshore-scratch-notes").mkdir()
    (tmp_path / "longshore-scratch-file").touch()
    scratch.sweep(tmp_path)
    assert len(os.listdir(tmp_path)) == 2


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"no scratch folders can be made in .*set scratch"):
        scratch.room(str(tmp_path / "file")).__enter__()


def test_a_room_stays_for_whoever_still_has_its_lock(tmp_path: Path) -> None:
    """A host that outlives its agent inherits the descriptor."""
    program = (
        "import os, subprocess, sys\nfrom longshore.executors.scratch import room\n"
        "with room(sys.argv[1]) as made:\n"
        "    subprocess.Popen(['cat'], pass_fds=[made.lock], stdout=2); os._exit(9)"
    )
    reading, writing = os.pipe()
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, stdin=reading)
    os.close(reading)
    [left] = tmp_path.iterdir()
    scratch.sweep(tmp_path)
    assert left.exists()
    os.close(writing)

    def is_swept() -> bool:
        scratch.sweep(tmp_path)
        return not left.exists()

    await_true(is_swept, "the process has ended")
