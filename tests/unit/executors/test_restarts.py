"""How long to wait before a host is started again."""

from longshore.executors.restarts import LONGEST_PAUSE_S, STEADY_S, Restarts
from longshore.testing.virtual import VirtualLoop


def test_hosts_that_do_not_last_are_started_less_and_less_often() -> None:
    """An app that cannot be imported any more must not keep a machine busy."""
    restarts, loop = Restarts(), VirtualLoop()

    async def pauses() -> list[float]:
        found = []
        for _ in range(12):
            restarts.note_start()
            found.append(restarts.pause_s())
        return found

    try:
        found = loop.run_until_complete(pauses())
    finally:
        loop.close()
    assert found[:4] == [0.05, 0.1, 0.2, 0.4]
    assert found[-1] == LONGEST_PAUSE_S


def test_a_host_that_lasted_is_followed_at_once_and_the_pauses_begin_anew() -> None:
    restarts, loop = Restarts(), VirtualLoop()

    async def pauses() -> list[float]:
        restarts.note_start()
        found = [restarts.pause_s(), restarts.pause_s()]
        loop._jumping.now += STEADY_S
        found.append(restarts.pause_s())
        restarts.note_start()
        return [*found, restarts.pause_s()]

    try:
        assert loop.run_until_complete(pauses()) == [0.05, 0.1, 0.0, 0.05]
    finally:
        loop.close()
