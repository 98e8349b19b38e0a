"""The account of what peers were sent and have not read."""

from __future__ import annotations

from longshore.links.send_budget import MARK_BYTES, MOST_ACCOUNTS, PEERS_IN_ALL, SendBudget

MOST = 4 * MARK_BYTES


class Mark:
    """A message that leaves when told to."""

    def __init__(self) -> None:
        self.done = False


class Moment:
    """A clock that goes on with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def send(unsent: SendBudget, peer: bytes, size: int) -> Mark | None:
    """Sends a message that is a mark, if it is admitted."""
    account = unsent.of(peer)
    if not unsent.admits(account, size):
        return None
    account.fresh += size
    mark = Mark()
    unsent.mark(account, mark)
    return mark


def test_a_peer_has_its_bound_and_room_again_once_something_has_left() -> None:
    unsent = SendBudget(MOST, Moment())
    marks = [send(unsent, b"a", MARK_BYTES) for _ in range(5)]
    assert [mark is not None for mark in marks] == [True] * 4 + [False]
    assert marks[0] is not None
    marks[0].done = True
    assert send(unsent, b"a", MARK_BYTES) is not None
    assert send(unsent, b"a", MARK_BYTES) is None


def test_one_message_larger_than_the_bound_passes_if_nothing_is_held() -> None:
    unsent = SendBudget(MOST, Moment())
    assert send(unsent, b"a", MOST + 1) is not None
    assert send(unsent, b"a", 1) is None


def test_many_peers_that_do_not_read_leave_others_what_is_small() -> None:
    unsent = SendBudget(MOST, Moment())
    marks = []
    for number in range(PEERS_IN_ALL):
        marks += [send(unsent, b"%d" % number, MARK_BYTES) for _ in range(4)]
    assert None not in marks
    assert send(unsent, b"other", MARK_BYTES) is None
    assert unsent.admits(unsent.of(b"other"), MARK_BYTES - 1)
    assert marks[0] is not None
    marks[0].done = True
    assert send(unsent, b"other", MARK_BYTES) is not None


def test_a_peer_that_is_gone_holds_nothing() -> None:
    unsent = SendBudget(MOST, Moment())
    for number in range(PEERS_IN_ALL):
        while send(unsent, b"%d" % number, MARK_BYTES):
            pass
    unsent.forget(b"0")
    assert send(unsent, b"other", MARK_BYTES) is not None


def test_peers_for_which_nothing_is_held_are_forgotten_when_there_are_many() -> None:
    unsent = SendBudget(MOST, Moment())
    held = send(unsent, b"held", MARK_BYTES)
    for number in range(3 * MOST_ACCOUNTS):
        unsent.of(b"%d" % number)
    assert held is not None
    assert len(unsent._accounts) <= MOST_ACCOUNTS
    assert unsent.of(b"held").marks
