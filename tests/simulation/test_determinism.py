"""A seed is one run, to the byte: in this process, and in one that hashes otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

from longshore.testing.simulation.run import simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_scenario

SEEDS = (6, 7, 11)
SEED_ON_SQLITE = 20
DIGESTS = """
import sys
from longshore.testing.simulation.run import simulate, simulate_on_sqlite
from longshore.testing.simulation.scenario import make_scenario
*seeds, on_sqlite = map(int, sys.argv[1:])
for seed in seeds:
    print(simulate(make_scenario(seed)).trace.digest())
print(simulate_on_sqlite(make_scenario(on_sqlite)).trace.digest())
"""


def digests_elsewhere(hash_seed: str) -> list[str]:
    """The traces of the seeds as another process has them."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGESTS, *map(str, (*SEEDS, SEED_ON_SQLITE))]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return answer.stdout.split()


def test_a_seed_is_the_same_run_twice() -> None:
    first, second = simulate(make_scenario(3)), simulate(make_scenario(3))
    assert list(first.trace.lines()) == list(second.trace.lines())
    assert first.trace.digest() == second.trace.digest()
    assert first.steps == second.steps


def test_a_seed_is_the_same_run_in_every_process() -> None:
    here = [simulate(make_scenario(seed)).trace.digest() for seed in SEEDS]
    here.append(simulate_on_sqlite(make_scenario(SEED_ON_SQLITE)).trace.digest())
    assert here == digests_elsewhere("1") == digests_elsewhere("4711")


def test_another_seed_is_another_run() -> None:
    digests = {simulate(make_scenario(seed)).trace.digest() for seed in (1, 2, 3)}
    assert len(digests) == 3
