"""Ids of new jobs: nobody else's, whoever makes them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from longshore.client.ids import fresh_id

MANY = 1_000

FORK = f"""
import os
from longshore.client.ids import fresh_id

fresh_id()
child = os.fork()
# One after the other: so much at once does not go through a pipe in one piece.
assert not child or os.waitpid(child, 0)[1] == 0
print("\\n".join(str(fresh_id()) for _ in range({MANY})), flush=True)
os._exit(0)
"""


def test_ids_sort_by_the_time_they_were_made_and_are_of_version_7() -> None:
    ids = [fresh_id() for _ in range(MANY)]
    assert [id.version for id in ids] == [7] * MANY
    times = [id.int >> 80 for id in ids]
    assert times == sorted(times)


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: fresh_id(), range(8 * MANY)))
    assert len({id.int & (1 << 62) - 1 for id in ids}) == len(ids)


def test_a_copy_of_a_process_makes_ids_of_its_own() -> None:
    """What the first process had drawn but not used yet must not be used by both."""
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True
    )
    noise = [line[-16:] for line in done.stdout.split()]
    assert len(noise) == len(set(noise)) == 2 * MANY
