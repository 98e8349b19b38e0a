"""Actors on SQLite: what they cost, counted in statements and steps of its machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from tests.unit.store.test_sqlite_claim import InlineDispatcher

from longshore.model.actor import TURNS_KEPT
from longshore.model.attempt import Attempt
from longshore.model.ends import End, Failed, Retried
from longshore.model.reports import OutboxJob, OutboxMessage
from longshore.ports import Batch
from longshore.store.sqlite import actors as verbs
from longshore.store.sqlite.file import DatabaseFile
from longshore.testing.actor_builders import TYPE, a_message, an_actor, an_ask, answered, taken
from longshore.testing.builders import a_claim, a_job, done, lane, some_jobs

LANE: Final = lane(kind=f"{TYPE}@1")
OF_ACTORS: Final = re.compile(r"\b(actor|turn|message|receipt|actor_id)\b")


class Desk(InlineDispatcher):
    """A worker that takes turns, and a look at the statements that this takes."""

    def start(self, *keys: str) -> None:
        self.write(lambda tx: verbs.start_actors(tx, [an_actor(key) for key in keys]))

    def turns(self, most: int) -> list[Attempt]:
        return self.claim(most, LANE)

    def asleep(self, *keys: str) -> None:
        """Actors that have taken their first turn."""
        self.start(*keys)
        self.pump(Batch([taken(one) for one in self.turns(len(keys))]))

    def statements(self, act: Callable[[], object]) -> list[str]:
        found: list[str] = []
        self.connection.set_trace_callback(found.append)
        act()
        self.connection.set_trace_callback(None)
        return found

    def steps(self, act: Callable[[], object]) -> int:
        """How many steps SQLite's machine takes, in hundreds."""
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        self.connection.set_progress_handler(step, 100)
        act()
        self.connection.set_progress_handler(None, 0)
        return count


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    file = DatabaseFile(tmp_path / "store.db", busy_s=1)
    file.migrate()
    with closing(file.open()) as connection:
        yield Desk(connection)


def test_jobs_without_actors_cost_no_statement_of_actors(desk: Desk) -> None:
    desk.submit(*some_jobs(3))
    first, second, third = desk.claim(3)
    ends: Sequence[End] = [
        done(first, outbox=[a_job()]),
        done(second, Failed),
        done(third, Retried),
    ]
    batch = Batch(ends, some_jobs(2), [a_claim([desk.slot] * 9)])
    found = desk.statements(lambda: desk.pump(batch))
    assert len(found) > 5
    assert not [text for text in found if OF_ACTORS.search(text)]


def statements_of(desk: Desk, size: int) -> list[int]:
    """How many statements so many actors take: to be asked, to be claimed, to take their turns."""
    keys = [f"{size}-{n}" for n in range(size)]
    desk.asleep(*keys)
    sends = [an_ask(key=key) for key in keys]
    asking = desk.statements(lambda: desk.pump(Batch(sends=sends)))
    attempts: list[Attempt] = []
    claiming = desk.statements(lambda: attempts.extend(desk.turns(size)))
    assert len(attempts) == size
    job, hello = OutboxJob(a_job()), a_message("hello", keys[0])
    ends = [taken(one, outbox=[*answered(one), OutboxMessage(hello), job]) for one in attempts]
    taking = desk.statements(lambda: desk.pump(Batch(ends)))
    return [len(asking), len(claiming), len(taking)]


def test_statements_do_not_grow_with_the_actors_of_a_batch(desk: Desk) -> None:
    few, many = statements_of(desk, 5), statements_of(desk, 500)
    assert few == many
    assert max(few) < 40


def test_turn_costs_the_same_however_many_actors_and_messages_others_have(desk: Desk) -> None:
    desk.asleep("a")

    def take_one() -> None:
        desk.pump(Batch(sends=[a_message()]))
        desk.pump(Batch([taken(one) for one in desk.turns(1)]))

    take_one()
    before = desk.steps(take_one)
    keys = [f"k{n}" for n in range(1_000)]
    desk.asleep(*keys)
    desk.pump(Batch(sends=[a_message("later", key, delay_s=600) for key in keys]))
    desk.pump(Batch(sends=[a_message("later", "k0", delay_s=600) for _ in range(1_000)]))
    assert desk.steps(take_one) <= before * 1.5 + 2


def test_turn_costs_the_same_however_many_messages_wait_in_its_mailbox(desk: Desk) -> None:
    desk.asleep("a")
    desk.pump(Batch(sends=[a_message() for _ in range(200)]))
    few = desk.steps(lambda: desk.pump(Batch([taken(one) for one in desk.turns(1)])))
    desk.pump(Batch(sends=[a_message("later", delay_s=600) for _ in range(4_000)]))
    desk.pump(Batch(sends=[a_message() for _ in range(4_000)]))
    many = desk.steps(lambda: desk.pump(Batch([taken(one) for one in desk.turns(1)])))
    assert many <= few * 1.5 + 2


def test_actor_of_a_job_stands_before_its_long_columns(desk: Desk) -> None:
    columns = [row[1] for row in desk.connection.execute("PRAGMA table_info(job)")]
    assert columns.index("actor_id") < columns.index("options") < columns.index("args")


def test_a_long_life_of_one_actor_leaves_as_many_rows_as_a_short_one(desk: Desk) -> None:
    desk.asleep("a")

    def rows_after(turns: int) -> list[int]:
        for _ in range(turns):
            desk.pump(Batch(sends=[a_message(key="a"), an_ask(key="a")]))
            [turn] = desk.turns(1)
            desk.pump(Batch([taken(turn, outbox=answered(turn))]))
        tables = ("actor", "turn", "message", "job", "log", "listed_field")
        counts = [desk.connection.execute(f"SELECT count(*) FROM {one}") for one in tables]
        return [int(count.fetchone()[0]) for count in counts]

    assert rows_after(2 * TURNS_KEPT) == rows_after(200)
