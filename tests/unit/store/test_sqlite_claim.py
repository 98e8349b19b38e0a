"""Claims on SQLite: their cost, counted in steps of its virtual machine, and what comes back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from longshore.model.attempt import Attempt
from longshore.model.job import JobFilter, JobState, Submission
from longshore.model.worker import SessionKey
from longshore.ports import Batch, BatchResult
from longshore.store.sqlite import keeper as sqlite_keeper
from longshore.store.sqlite import reads as sqlite_reads
from longshore.store.sqlite.file import DatabaseFile
from longshore.store.sqlite.pump import pump
from longshore.store.sqlite.transaction import Snapshot, Transaction
from longshore.testing.builders import a_claim, a_job, a_worker, lane, new_id

T = TypeVar("T")

NOW = 1_700_000_000_000_000
MANY = 20_000


class InlineDispatcher:
    """A connection used as the store's writer uses it, and one worker with slots."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.dispatcher = new_id()
        info = a_worker()
        self.write(lambda tx: sqlite_keeper.attend(tx, self.dispatcher, info))
        self.slot = SessionKey(info.id, 1)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Does it in a transaction of its own."""
        self.connection.execute("BEGIN IMMEDIATE")
        tx = Transaction(self.connection, NOW)
        answer = work(tx)
        tx.settle()
        self.connection.execute("COMMIT")
        return answer

    def pump(self, batch: Batch) -> BatchResult:
        return self.write(lambda tx: pump(tx, self.dispatcher, batch, 10.0))

    def submit(self, *jobs: Submission) -> None:
        self.pump(Batch(submits=jobs))

    def claim(self, most: int, *lanes: int) -> list[Attempt]:
        return self.pump(Batch(claims=[a_claim([self.slot] * most, *lanes)])).claimed

    def fill(self, state: JobState, lane: int, number: int = MANY) -> None:
        """Many jobs that are in this state already."""
        self.connection.execute(
            """WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
            INSERT INTO job (id, lane, state, priority, created_at, run_at, body_hash, kind, queue,
                target, options, history, args)
            SELECT randomblob(16), ?2, ?1, 0, 0, 9e15, 0, 'work', 'default', '', x'80', '[]', x''
            FROM n""",
            (state, lane, number),
        )
        self.connection.execute("UPDATE job SET rank = number WHERE rank = 0")
        self.connection.execute("UPDATE sequence SET number = (SELECT max(number) FROM job)")

    def steps(self, work: Callable[[], object]) -> int:
        """How many steps SQLite takes for it: the same on every machine, however fast."""
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        self.connection.set_progress_handler(step, 1)
        work()
        self.connection.set_progress_handler(None, 1)
        return count


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[InlineDispatcher]:
    file = DatabaseFile(tmp_path / "store.db", busy_s=1)
    file.migrate()
    with closing(file.open()) as connection:
        desk = InlineDispatcher(connection)
        # The first job of a lane that runs adds a row to its tally; later ones change it.
        desk.submit(a_job())
        desk.claim(1)
        yield desk


def fill_with_what_no_claim_wants(desk: InlineDispatcher) -> None:
    desk.fill(JobState.READY, lane(kind="unservable"))
    for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.DELAYED, JobState.WAITING):
        desk.fill(state, lane())


def test_claim_costs_the_same_whatever_else_the_store_holds(desk: InlineDispatcher) -> None:
    desk.submit(*(a_job() for _ in range(5)))
    alone = desk.steps(lambda: desk.claim(5))
    fill_with_what_no_claim_wants(desk)
    desk.submit(*(a_job() for _ in range(5)))
    among_many = desk.steps(lambda: desk.claim(5))
    assert among_many == alone


def test_claim_in_vain_costs_the_same_whatever_else_the_store_holds(desk: InlineDispatcher) -> None:
    desk.submit(a_job(kind="other"))
    alone = desk.steps(lambda: desk.claim(5))
    fill_with_what_no_claim_wants(desk)
    assert desk.steps(lambda: desk.claim(5)) == alone


def test_claim_costs_the_same_however_long_its_lane_is(desk: InlineDispatcher) -> None:
    desk.submit(*(a_job() for _ in range(50)))
    short = desk.steps(lambda: desk.claim(5))
    desk.fill(JobState.READY, lane())
    assert desk.steps(lambda: desk.claim(5)) == short


def test_claim_from_many_lanes_reads_little_more_than_it_takes(desk: InlineDispatcher) -> None:
    lanes = [lane(kind=f"kind {number}") for number in range(20)]
    desk.fill(JobState.READY, lanes[0], 100)
    from_one = desk.steps(lambda: desk.claim(50, *lanes))
    for one in lanes:
        desk.fill(JobState.READY, one, 1000)
    assert desk.steps(lambda: desk.claim(50, *lanes)) < 3 * from_one


def test_due_jobs_are_found_without_looking_at_the_others(desk: InlineDispatcher) -> None:
    desk.submit(a_job(delay_s=1e-6))
    alone = desk.steps(lambda: sqlite_reads.next_due_s(Snapshot(desk.connection, NOW + 1)))
    fill_with_what_no_claim_wants(desk)
    assert desk.steps(lambda: sqlite_reads.next_due_s(Snapshot(desk.connection, NOW + 1))) == alone


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED, JobState.DELAYED])
def test_list_of_a_rare_state_does_not_look_at_the_others(
    desk: InlineDispatcher, state: JobState
) -> None:
    desk.fill(state, lane(), 100)
    wanted = JobFilter(states=(state,), limit=20)
    alone = desk.steps(lambda: sqlite_reads.jobs(Snapshot(desk.connection, NOW), wanted))
    desk.fill(JobState.SUCCEEDED, lane())
    desk.fill(JobState.READY, lane())
    assert desk.steps(lambda: sqlite_reads.jobs(Snapshot(desk.connection, NOW), wanted)) == alone


def test_best_jobs_of_all_lanes_go_first(desk: InlineDispatcher) -> None:
    """One lane has far more of the best than its share, so that it is read on several times."""
    jobs = [
        a_job(kind=f"kind {number % 7}", priority=3 if number % 7 == 0 else number % 3)
        for number in range(400)
    ]
    desk.submit(*jobs)
    lanes = {lane(kind=job.kind) for job in jobs}
    claimed = desk.claim(100, *lanes)
    in_order = sorted(jobs, key=lambda job: -job.priority)
    assert [one.id for one in claimed] == [job.id for job in in_order[:100]]


@pytest.mark.parametrize(
    "args",
    [b"", b"\0", b"\0\xff\xfe\0", bytes(range(256)) * 3, "späß".encode("utf-16"), b"\xc3"],
    ids=["empty", "nul", "not text", "every byte", "utf-16", "half a character"],
)
def test_arguments_come_back_byte_for_byte(desk: InlineDispatcher, args: bytes) -> None:
    desk.submit(a_job(args=args), a_job(args=b"between", timeout_s=1.5), a_job(args=args))
    claimed = desk.claim(3)
    assert [one.args for one in claimed] == [args, b"between", args]
    assert [one.options.timeout_s for one in claimed] == [None, 1.5, None]


def test_arguments_too_large_to_be_read_together_are_read_in_turn(
    desk: InlineDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longshore.store.sqlite.claim._PACK_BYTES", 1000)
    jobs = [a_job(args=bytes([number]) * (number * 90)) for number in range(30)]
    desk.submit(*jobs)
    assert [one.args for one in desk.claim(30)] == [job.args for job in jobs]


def test_more_jobs_than_one_statement_takes(desk: InlineDispatcher) -> None:
    jobs = [a_job() for _ in range(1000)]
    desk.submit(*jobs)
    claimed = desk.claim(1000)
    assert [one.id for one in claimed] == [job.id for job in jobs]
    assert len({one.token for one in claimed}) == 1000


def test_ids_of_every_kind_of_byte(desk: InlineDispatcher) -> None:
    ids = [UUID(int=0), UUID(int=2**128 - 1), UUID(int=0xC3)]
    desk.submit(*(a_job(id=id) for id in ids))
    assert [one.id for one in desk.claim(3)] == ids
