"""Files on a store and on the plain model in memory: the same answers, whatever is asked.

After each step every published version is whole. In the end, when all is removed and all attempts
are over, nothing is left.
"""

from __future__ import annotations

import pytest

from longshore.testing.backends import Backend

from .fileset_machine import FilesetMachine
from .machines import play

EXAMPLES = {"memory": 20, "sqlite": 50, "postgres": 18, "pgbouncer": 3}


def test_files_are_as_the_model_says(backend: Backend, request: pytest.FixtureRequest) -> None:
    play(FilesetMachine, backend, request, EXAMPLES, steps=30)
