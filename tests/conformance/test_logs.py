"""What attempts said is read back in order, page by page, attempt by attempt."""

from __future__ import annotations

from longshore.model.attempt import Attempt
from longshore.model.ends import Released
from longshore.model.job import LogEntry, LogKind
from longshore.testing.builders import Scene, done, new_id


def lines(attempt: Attempt, *numbers: int) -> list[LogEntry]:
    return [
        LogEntry(attempt.id, attempt.token, number, LogKind.TEXT, b"\x00\xff %d" % number)
        for number in numbers
    ]


async def test_logs_are_read_by_number_and_by_id_in_order(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.store.log(lines(attempt, 3, 1))
    await scene.store.log(lines(attempt, 2))
    kept = await scene.store.logs(attempt.id)
    assert [(one.token, one.seq, one.kind, one.data) for one in kept] == [
        (attempt.token, seq, LogKind.TEXT, b"\x00\xff %d" % seq) for seq in (1, 2, 3)
    ]
    assert await scene.store.logs(attempt.number) == kept
    assert all(one.at.tzinfo is not None for one in kept)


async def test_logs_of_nobody_are_empty(scene: Scene) -> None:
    attempt = await scene.running()
    assert await scene.store.logs(attempt.id) == []
    for unknown in (new_id(), attempt.number + 1, 0, -1, 2**63, 2**100):
        assert await scene.store.logs(unknown) == []


async def test_logs_come_in_pages(scene: Scene) -> None:
    attempt = await scene.running()
    await scene.store.log(lines(attempt, *range(1, 8)))
    seen: list[int] = []
    after = (0, 0)
    while page := await scene.store.logs(attempt.id, after=after, most=3):
        seen += [one.seq for one in page]
        after = page[-1].token, page[-1].seq
    assert seen == list(range(1, 8))
    assert await scene.store.logs(attempt.id, after=(2**70, 2**70)) == []


async def test_logs_of_each_attempt_are_kept_apart(scene: Scene) -> None:
    slot = await scene.attend()
    old = await scene.running(slot=slot)
    await scene.store.log(lines(old, 1, 2))
    await scene.finish(done(old, Released))
    [new] = await scene.claim(slot)
    await scene.store.log(lines(new, 1))
    every = await scene.store.logs(old.id)
    assert [(one.token, one.seq) for one in every] == [
        (old.token, 1),
        (old.token, 2),
        (new.token, 1),
    ]
    assert await scene.store.logs(old.id, token=old.token) == every[:2]
    assert await scene.store.logs(old.id, token=new.token) == every[2:]
    assert await scene.store.logs(old.id, token=old.token, after=(old.token, 1)) == every[1:2]


async def test_entries_with_numbers_that_nobody_gave_do_no_harm_to_others(scene: Scene) -> None:
    attempt = await scene.running()
    odd = [*lines(attempt, 2**63, -(2**64)), LogEntry(attempt.id, 2**64, 1, LogKind.TEXT, b"")]
    await scene.store.log([*odd, *lines(attempt, 1)])
    assert [one.seq for one in await scene.store.logs(attempt.id)] == [1]
