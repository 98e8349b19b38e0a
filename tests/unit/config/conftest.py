"""What these tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(elsewhere: None) -> None:
    """No settings of whoever runs the tests are read."""
