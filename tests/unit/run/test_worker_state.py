"""The state folder: what the next agent finds of one that was killed, and when it believes it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from longshore.core.takeback import BegunAttempt
from longshore.errors import ConfigError
from longshore.executors.successors import left_hosts, listen
from longshore.model.attempt import Assignment
from longshore.run import worker_state as module
from longshore.run.worker_state import StateFolder, worker_state

WORKER = UUID(int=7)
HERE = "dock boot pid:[1]"


def assignment(token: int, kind: str = "train") -> Assignment:
    return Assignment(UUID(int=token), token, token, kind, b"")


def begun(token: int, kind: str = "train", *, ended: bool = False) -> BegunAttempt:
    return BegunAttempt(UUID(int=token), token, kind, ended)


def filled(folder: Path) -> StateFolder:
    """A folder after an agent that began four attempts, and was killed."""
    state = StateFolder(folder, HERE)
    state.joining(WORKER, 3)
    for token in (1, 2, 3, 4):
        state.began(assignment(token))
    state.ended(2)
    state.ended(3)
    state.recorded([3, 99])
    return state


def test_the_next_agent_finds_what_the_last_one_wrote(tmp_path: Path) -> None:
    filled(tmp_path)
    found = StateFolder(tmp_path, HERE)
    assert (found.worker, found.session) == (WORKER, 3)
    assert list(found.begun) == [begun(1), begun(2, ended=True), begun(4)]
    assert list(StateFolder(tmp_path, HERE).begun) == list(found.begun)


def test_an_empty_folder_tells_nothing(tmp_path: Path) -> None:
    state = StateFolder(tmp_path, HERE)
    assert (state.worker, state.session, list(state.begun)) == (None, 0, [])


@pytest.mark.parametrize("place", ["dock later-boot pid:[1]", "quay boot pid:[1]"])
def test_a_folder_of_another_boot_or_machine_is_not_believed(tmp_path: Path, place: str) -> None:
    filled(tmp_path)
    with listen(str(tmp_path)):
        found = StateFolder(tmp_path, place)
        assert (found.worker, list(found.begun)) == (None, [])
        assert left_hosts(str(tmp_path)) == []
    assert StateFolder(tmp_path, HERE).worker is None


def test_what_was_cut_off_in_the_middle_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = tmp_path / "begun"
    journal.write_bytes(journal.read_bytes() + b'["began",9,"0000')
    assert [one.token for one in StateFolder(tmp_path, HERE).begun] == [1, 2, 4]
    (tmp_path / "worker").write_bytes(b"")
    assert StateFolder(tmp_path, HERE).worker is None


def test_a_journal_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOURNAL_BYTES", 1_000)
    state = filled(tmp_path)
    for token in range(10, 200):
        state.began(assignment(token, 'odd "kind"\n'))
        state.recorded([token])
    assert (tmp_path / "begun").stat().st_size < 2_000
    assert [one.token for one in StateFolder(tmp_path, HERE).begun] == [1, 2, 4]


def test_a_worker_that_leaves_in_order_leaves_nothing(tmp_path: Path) -> None:
    with worker_state(str(tmp_path)) as state:
        assert state is not None
        state.joining(WORKER, 1)
        state.began(assignment(1))
    with worker_state(str(tmp_path)) as again:
        assert again is not None
        assert (again.worker, list(again.begun)) == (None, [])


def test_a_worker_that_fails_leaves_all(tmp_path: Path) -> None:
    def fails() -> None:
        with worker_state(str(tmp_path)) as state:
            assert state is not None
            state.joining(WORKER, 1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    with worker_state(str(tmp_path)) as again:
        assert again is not None
        assert again.worker == WORKER


def test_two_agents_cannot_share_a_folder(tmp_path: Path) -> None:
    refused = r"another worker \(process \d+\) uses .*; give each worker a folder of its own"
    given = str(tmp_path)
    with worker_state(given), pytest.raises(ConfigError, match=refused), worker_state(given):
        raise AssertionError
    with worker_state(str(tmp_path)) as again:
        assert again is not None


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given, refused = str(tmp_path / "file/state"), r"state_folder: .*file/state cannot be used"
    with pytest.raises(ConfigError, match=refused), worker_state(given):
        raise AssertionError


def test_what_could_not_be_written_is_not_believed(tmp_path: Path) -> None:
    """An attempt that the journal lacks would run again, and nobody would count the crash."""
    state = filled(tmp_path)
    (tmp_path / "begun.new").mkdir()
    for token in range(10, 12):
        state.began(assignment(token))
    state._rewrite()
    state.joining(WORKER, 4)
    (tmp_path / "begun.new").rmdir()
    assert StateFolder(tmp_path, HERE).worker is None
