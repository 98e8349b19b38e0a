"""Containers on a real engine: what they see, what they may, how they end."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from longshore.executors.host.programs import container_usage
from longshore.executors.host.programs.folders import FolderKeeper
from longshore.model.attempt import Assignment
from longshore.model.log import LogLimits
from longshore.model.program import Container, Limits, Outcome, ProgramEnd
from longshore.model.usage import Usage
from longshore.testing.engine import IMAGE, Engine

from .ship import Attempt, began, run, runner, shell, unmeasured, until, whole


async def test_a_container_runs_and_tells_its_steps_and_nothing_is_left(
    engine: Engine, tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, shell("echo hello; echo oops >&2"))
    end = await run(engine.url, attempt)
    assert unmeasured(end) == ProgramEnd(Outcome.EXIT, 0, "container exited with code 0")
    assert attempt.steps == ["creating container"]
    assert attempt.printed("stdout") == ["hello"]
    assert attempt.printed("stderr") == ["oops"]
    assert engine.containers(f"name={attempt.name}") == []


async def test_the_exit_code_is_the_programs_own(engine: Engine, tmp_path: Path) -> None:
    end = await run(engine.url, Attempt(tmp_path, shell("exit 3")))
    assert unmeasured(end) == ProgramEnd(Outcome.EXIT, 3, "container exited with code 3")


async def test_a_program_that_a_signal_ends_is_told_apart(engine: Engine, tmp_path: Path) -> None:
    end = await run(engine.url, Attempt(tmp_path, shell("sh -c 'kill -SEGV $$'; exit $?")))
    words = "container was killed by signal 11 (SIGSEGV)"
    assert unmeasured(end) == ProgramEnd(Outcome.SIGNAL, 11, words)


async def test_a_container_past_its_memory_is_told_apart(engine: Engine, tmp_path: Path) -> None:
    hungry = shell("tail /dev/zero", limits=Limits(memory_bytes=16 * 1024**2))
    end = await run(engine.url, Attempt(tmp_path, hungry))
    assert end.outcome is Outcome.OUT_OF_MEMORY
    assert end.words == "container ran out of memory (its limit is 16,777,216 bytes)"


async def test_what_a_container_uses_is_measured_while_it_runs(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(tmp_path, shell("until [ -e seen ]; do sleep 0.02; done"))
    usage_in = container_usage.usage_in

    def seen(stats: dict[str, Any]) -> Usage | None:
        found = usage_in(stats)
        if found is not None:
            (attempt.folder / "seen").touch()
        return found

    monkeypatch.setattr(container_usage, "usage_in", seen)
    end = await run(engine.url, attempt)
    assert end.usage is not None
    assert 50_000 < end.usage.memory_bytes < 1_000_000_000
    assert 0 < end.usage.cpu_s < 60


async def test_a_command_that_is_not_in_the_image_is_named(engine: Engine, tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, Container(image=IMAGE, command=("no-such-program",)))
    end = await run(engine.url, attempt)
    assert end.outcome is Outcome.NOT_STARTED
    assert '"no-such-program": executable file not found' in end.words
    assert engine.containers(f"name={attempt.name}") == []


async def test_a_user_that_is_not_in_the_image_is_named(engine: Engine, tmp_path: Path) -> None:
    end = await run(engine.url, Attempt(tmp_path, shell("id", user="captain")))
    assert end.outcome is Outcome.NOT_STARTED
    assert "unable to find user captain" in end.words


async def test_a_limit_that_no_engine_grants_is_the_jobs_fault(
    engine: Engine, tmp_path: Path
) -> None:
    end = await run(engine.url, Attempt(tmp_path, shell("true", limits=Limits(memory_bytes=1))))
    assert end.outcome is Outcome.NOT_STARTED
    assert "memory limit" in end.words


async def test_it_sees_its_folders_and_variables_under_their_names_inside(
    engine: Engine, tmp_path: Path
) -> None:
    script = "cat in.txt; pwd; echo $LONGSHORE_RESULT $NAME; echo 7 > $LONGSHORE_RESULT; echo x > o"
    attempt = Attempt(tmp_path, shell(script, env={"NAME": "Ann Lee"}))
    (attempt.folder / "in.txt").write_text("brought\n")
    assert (await run(engine.url, attempt)).is_success
    assert attempt.printed() == ["brought", "/work", "/longshore/result Ann Lee"]
    assert (attempt.report / "result").read_text() == "7\n"
    assert (attempt.folder / "o").read_text() == "x\n"


async def test_whoever_it_runs_as_may_write_there(engine: Engine, tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, shell("id -un; touch out; touch /longshore/result", user="sailor"))
    assert (await run(engine.url, attempt)).is_success
    assert attempt.printed() == ["sailor"]
    assert (attempt.folder / "out").exists()


@pytest.mark.parametrize("user", ["", "sailor"])
async def test_secrets_are_there_for_its_user_to_read_and_nowhere_else(
    engine: Engine, tmp_path: Path, user: str
) -> None:
    (kept := tmp_path / "kept").mkdir()
    (kept / "mail-password").write_text("hush-hush")
    script = (
        "wc -c < $LONGSHORE_SECRETS/mail-password; ls $LONGSHORE_SECRETS; "
        "(echo x > $LONGSHORE_SECRETS/mail-password) 2> /dev/null || echo read-only; "
        "(echo x > $LONGSHORE_SECRETS/other) 2> /dev/null || echo read-only; "
        "env | grep -c hush"
    )
    program = shell(script, user=user, secrets=("mail-password",))
    assignment = Assignment(uuid4(), 1, 1, "longshore.container", b"")
    folders = FolderKeeper().make(assignment, program, str(kept))
    attempt = Attempt(tmp_path, program, secrets=folders.secrets)
    try:
        await run(engine.url, attempt)
        assert attempt.printed() == ["9", "mail-password", "read-only", "read-only", "0"]
        assert not any("hush-hush" in line.text for line in attempt.lines)
        assert any("/longshore-secrets" in line.text for line in attempt.lines), "it is described"
    finally:
        await FolderKeeper().remove(folders)
    assert not folders.whole.exists()


async def test_it_has_no_network_no_privileges_and_no_way_to_more(
    engine: Engine, tmp_path: Path
) -> None:
    script = (
        "ls /sys/class/net; grep NoNewPrivs /proc/self/status; mount -t tmpfs x /tmp || echo no; "
        "ls /dev/sda /dev/vda 2>/dev/null; echo $$"
    )
    attempt = Attempt(tmp_path, shell(script))
    assert (await run(engine.url, attempt)).outcome is Outcome.EXIT
    assert attempt.printed() == ["lo", "NoNewPrivs:\t1", "no", "1"]


async def test_a_fork_bomb_stays_within_its_processes(engine: Engine, tmp_path: Path) -> None:
    script = "for i in $(seq 50); do sleep 60 & done; wait"
    end = await run(engine.url, Attempt(tmp_path, shell(script, limits=Limits(pids=8))))
    assert end.outcome is Outcome.EXIT
    assert end.number != 0


async def test_output_is_binary_safe_and_bounded(engine: Engine, tmp_path: Path) -> None:
    script = r"printf '\377\000\n'; yes | head -n 100000"
    attempt = Attempt(tmp_path, shell(script), LogLimits(entries=50))
    assert (await run(engine.url, attempt)).is_success
    lines = attempt.lines
    assert lines[0].text == "\\xff\x00"
    assert len(lines) <= 50 + 1 + 100
    assert any(line.stream == "note" and "lines were left out" in line.text for line in lines)


async def test_a_cancelled_container_is_asked_to_end_first(engine: Engine, tmp_path: Path) -> None:
    script = "trap 'echo bye > ended; exit 0' TERM; echo up > began; while :; do sleep 0.1; done"
    attempt = Attempt(tmp_path, shell(script))
    async with runner(engine.url, grace_s=60.0) as made:
        task = asyncio.create_task(whole(made, attempt))
        await began(attempt)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.containers(f"name={attempt.name}") == []
    assert (attempt.folder / "ended").exists()


async def test_a_container_that_will_not_end_is_killed_after_its_grace(
    engine: Engine, tmp_path: Path
) -> None:
    script = "trap '' TERM; echo up > began; while :; do sleep 0.1; done"
    attempt = Attempt(tmp_path, shell(script))
    async with runner(engine.url, grace_s=0.2) as made:
        task = asyncio.create_task(whole(made, attempt))
        await began(attempt)
        task.cancel()
        # A second cancel does not make it leave anything.
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.containers(f"name={attempt.name}") == []


async def test_a_container_cancelled_while_it_is_made_is_removed(
    engine: Engine, tmp_path: Path
) -> None:
    async with runner(engine.url, grace_s=0.1) as made:
        for turns in range(12):
            attempt = Attempt(tmp_path / str(turns), shell("sleep 60"))
            task = asyncio.create_task(whole(made, attempt))
            await until(partial(getattr, attempt, "steps"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert engine.containers(f"name={attempt.name}") == []


async def test_containers_run_side_by_side(engine: Engine, tmp_path: Path) -> None:
    """Each waits for all others: they end only if all run at once."""
    count = 5
    script = f"touch m-$N; until [ $(ls | grep -c m-) = {count} ]; do sleep 0.05; done"
    shared = tmp_path / "shared"
    attempts = [Attempt(shared, shell(script, env={"N": str(n)})) for n in range(count)]
    async with runner(engine.url) as made:
        ends = await asyncio.gather(*(whole(made, attempt) for attempt in attempts))
    assert all(end.is_success for end in ends)


async def test_its_labels_say_whose_it_is(engine: Engine, tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, shell("echo up > began; sleep 600"))
    async with runner(engine.url, grace_s=0.1) as made:
        task = asyncio.create_task(whole(made, attempt))
        await began(attempt)
        said = engine.docker("inspect", "--format", "{{json .Config.Labels}}", attempt.name)
        task.cancel()
        await asyncio.wait([task])
    job, token = attempt.assignment.key
    assert json.loads(said) == {
        "longshore.fleet": "fleet-1",
        "longshore.worker": "worker-1",
        "longshore.process": "this process",
        "longshore.job": str(job),
        "longshore.token": str(token),
    }
