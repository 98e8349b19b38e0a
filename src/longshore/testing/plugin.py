"""What pytest finds where Longshore is installed: a fixture, inert unless it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from longshore.client.app import App
    from longshore.testing.kit import Kit


class StartKit(Protocol):
    """What the fixture `longshore_kit` is."""

    def __call__(self, *apps: App, eager: bool = False) -> Kit:
        """A kit for these apps until the test's end."""


@pytest.fixture
def longshore_kit() -> Iterator[StartKit]:
    """Runs apps' jobs in the test: `kit = longshore_kit(app)`, until the test's end."""
    from longshore.testing.kit import run_inline

    with ExitStack() as kits:

        def start(*apps: App, eager: bool = False) -> Kit:
            return kits.enter_context(run_inline(*apps, eager=eager))

        yield start
