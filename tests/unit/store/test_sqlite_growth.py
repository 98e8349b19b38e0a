"""Groups that grow, on SQLite: what they cost, counted in statements and steps of its machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.store.test_sqlite_claim import InlineDispatcher

from longshore.model.ends import End, Failed, Succeeded
from longshore.model.group import GroupPart, GroupSubmitted
from longshore.ports import Batch, Settled
from longshore.store.sqlite import groups
from longshore.store.sqlite.file import DatabaseFile
from longshore.testing.builders import a_group, a_map, done

MOST = 10_000


class Desk(InlineDispatcher):
    """A connection used as the store's writer uses it, for groups."""

    def submit_group(self, part: GroupPart) -> None:
        """A group that was accepted, and its maps expanded."""
        assert isinstance(self.write(lambda tx: groups.submit_group(tx, part)), GroupSubmitted)
        while self.settle().groups:
            pass

    def settle(self) -> Settled:
        return self.write(lambda tx: groups.settle(tx, most=MOST))

    def end_one(self) -> list[str]:
        """Ends the next job; answers the statements that this took."""
        [attempt] = self.claim(1)
        found: list[str] = []
        self.connection.set_trace_callback(found.append)
        self.pump(Batch([done(attempt)]))
        self.connection.set_trace_callback(None)
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    file = DatabaseFile(tmp_path / "store.db", busy_s=1)
    file.migrate()
    with closing(file.open()) as connection:
        yield Desk(connection)


def test_an_end_in_no_scope_takes_no_more_statements(desk: Desk) -> None:
    desk.submit_group(a_group({"a": "", "b": ""}))
    in_no_scope = desk.end_one()
    desk.end_one()
    desk.submit_group(a_group({"m": ""}, jobs={"m": a_map(range(3))}))
    in_a_scope = desk.end_one()
    assert not [text for text in in_no_scope if "scope_marks =" in text]
    assert len(in_a_scope) == len(in_no_scope) + 2, "the scope is read once, and written once"


@pytest.mark.parametrize("how", [Succeeded, Failed])
def test_the_end_of_an_element_costs_the_same_however_large_its_map_is(
    desk: Desk, how: type[End]
) -> None:
    costs = [cost_in_a_map(desk, size, how) for size in (100, 3_000)]
    assert costs[1] <= costs[0] * 1.1


def cost_in_a_map(desk: Desk, size: int, how: type[End]) -> int:
    """What the end of one element costs; afterwards the group has ended."""
    desk.submit_group(a_group({"m": "", "d": "m"}, jobs={"m": a_map(range(size))}))
    one, *others = desk.claim(size)
    cost = desk.steps(lambda: desk.pump(Batch([done(one, how)])))
    desk.pump(Batch([done(other) for other in others]))
    desk.settle()
    desk.pump(Batch([done(dependent) for dependent in desk.claim(1)]))
    assert not desk.settle().groups
    return cost


def test_the_end_of_an_element_asks_for_no_settling_while_others_run(desk: Desk) -> None:
    desk.submit_group(a_group({"m": "", "d": "m"}, jobs={"m": a_map(range(3))}))
    named = [len(desk.pump(Batch([done(one)])).groups) for one in desk.claim(3)]
    assert named == [0, 0, 1]
