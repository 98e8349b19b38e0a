"""What an app wants done around its jobs is done, once a process, in the process that runs them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from longshore.errors import AppError
from longshore.model.reports import CrashReport

from .stand import Stand, error_of, failure_in, result_of

APP = "hooks_app:app"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the app's hooks note what they do."""
    path = tmp_path / "notes"
    monkeypatch.setenv("HOOKS_NOTES", str(path))
    return path


def noted(notes: Path) -> list[str]:
    """What the hooks did so far."""
    return notes.read_text().splitlines() if notes.exists() else []


async def test_coroutines_share_what_was_opened_once(stand: Stand, notes: Path) -> None:
    executor = await stand.open_coroutine(app=APP)
    assert noted(notes) == ["pool opened", "began"]
    assert await stand.result("draw", amount=1) == "outer(inner(2 draw 1))"
    assert await stand.result("draw", amount=5) == "outer(inner(7 draw 1))"
    await executor.close()
    told = ["pool opened", "began", "finished", "pool closed"]
    assert noted(notes) == told


async def test_a_child_opens_what_its_own_jobs_ask_for(stand: Stand, notes: Path) -> None:
    executor = await stand.open_child(app=APP)
    assert await stand.result("read", name="a") == "plain(a from files read 1)"
    assert await stand.result("read", name="b") == "plain(b from files read 1)"
    await executor.close()
    told = ["files opened", "began", "finished", "files closed"]
    assert noted(notes) == told


async def test_a_child_that_is_replaced_closes_what_it_opened(stand: Stand, notes: Path) -> None:
    executor = await stand.open_child(app=APP, max_jobs=1)
    await stand.result("read", name="a")
    while executor._ending:
        await asyncio.gather(*executor._ending)
    told = ["files opened", "began", "finished", "files closed"]
    assert [text for text in noted(notes) if text in told][-2:] == ["finished", "files closed"]


async def test_threads_share_what_was_opened_once_and_the_context_it_was_opened_in(
    stand: Stand, notes: Path
) -> None:
    executor = await stand.open_thread(app=APP)
    for count in (2, 4):
        started = [stand.start("borrow") for _ in range(2)]
        first, second = [result_of(await stand.report_of(one)) for one in started]
        assert first == second
        assert re.fullmatch(rf"plain\({count} of \d+ the resource borrow 1\)", first)
    await executor.close()
    assert noted(notes) == ["shelf opened", "began", "finished", "shelf closed"]


async def test_the_process_after_a_crash_opens_its_own(stand: Stand, notes: Path) -> None:
    await stand.open_child(app=APP)
    assert isinstance(await stand.run("die"), CrashReport)
    assert await stand.result("read", name="a") == "plain(a from files read 1)"
    assert noted(notes).count("files opened") == 2


async def test_middleware_may_turn_one_exception_into_another(stand: Stand, notes: Path) -> None:
    await stand.open_coroutine(app=APP)
    report = await stand.run("refuse")
    assert failure_in(report).final
    assert error_of(report).message == "caught on the way"
    assert "ValueError: refuse" in (error_of(report).traceback or "")


@pytest.mark.parametrize(
    ("when", "what"),
    [
        ("open", "the resource 'pool' of the app 'hooks' could not be opened"),
        ("begin", "the start-up hook 'begin' of the app 'hooks' failed"),
    ],
)
async def test_a_hook_that_fails_is_told_as_an_app_that_cannot_be_loaded(
    stand: Stand, notes: Path, monkeypatch: pytest.MonkeyPatch, when: str, what: str
) -> None:
    monkeypatch.setenv("HOOKS_FAIL", when)
    with pytest.raises(AppError) as caught:
        await stand.open_coroutine(app=APP)
    first, *lines = str(caught.value).splitlines()
    assert first == f"{what}: ConnectionError: nobody there to {when}"
    assert all("hooks_app.py" in line for line in lines)
    assert "finished" not in noted(notes)


async def test_what_was_opened_before_a_failure_is_closed(
    stand: Stand, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOKS_FAIL", "begin")
    with pytest.raises(AppError):
        await stand.open_coroutine(app=APP)
    assert noted(notes) == ["pool opened", "pool closed"]


async def test_a_stop_hook_that_fails_is_told_and_the_rest_is_closed(
    stand: Stand, notes: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOKS_FAIL", "finish")
    executor = await stand.open_coroutine(app=APP)
    await executor.close()
    assert noted(notes)[-1] == "pool closed"
    said = capfd.readouterr().err
    assert "stop hook 'finish' of the app 'hooks' failed: ConnectionError: nobody there" in said


async def test_a_hook_that_hangs_is_given_up(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging.py").write_text(
        "import asyncio, longshore\n"
        "app = longshore.App('hanging')\n"
        "@app.on_start\n"
        "async def wait() -> None:\n"
        "    await asyncio.Event().wait()\n"
        "@app.job\n"
        "async def never() -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AppError, match="start-up hooks took longer than start_timeout_s"):
        await stand.open_coroutine(app="hanging:app", start_timeout_s=1.0)


async def test_a_failure_is_told_even_if_closing_fails_too(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(
        "import longshore\n"
        "app = longshore.App('broken')\n"
        "@app.resource\n"
        "def pool():\n"
        "    yield 1\n"
        "    raise OSError('cannot be closed')\n"
        "@app.on_start\n"
        "def begin() -> None:\n"
        "    raise ValueError('cannot begin')\n"
        "@app.job\n"
        "async def never(pool: int = longshore.GIVEN) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AppError, match=r"'begin' of the app 'broken' failed: .*cannot begin"):
        await stand.open_coroutine(app="broken:app")


async def test_a_process_that_has_no_jobs_of_an_app_does_nothing_for_it(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_async.py").write_text(
        "import longshore\n"
        "app = longshore.App('only')\n"
        "@app.on_start\n"
        "def refuse() -> None:\n"
        "    raise RuntimeError('not here')\n"
        "@app.job\n"
        "async def never() -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    await stand.open_child(app="only_async:app")


async def test_two_apps_are_served_as_one(stand: Stand, notes: Path) -> None:
    executor = await stand.open_coroutine(app=f"jobs_app:app, {APP}")
    assert {"add_async", "draw"} <= executor.kinds.keys()
    assert await stand.result("add_async", a=1, b=2) == 3
    assert await stand.result("draw", amount=1) == "outer(inner(2 draw 1))"
