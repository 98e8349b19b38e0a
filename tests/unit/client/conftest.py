"""What the client's tests share: a dispatcher to talk to, and an app that does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longshore import App

from .fake import FakeDispatcher


@pytest.fixture
def fake() -> Iterator[FakeDispatcher]:
    """A dispatcher that answers."""
    with FakeDispatcher() as dispatcher:
        yield dispatcher


@pytest.fixture
def app(fake: FakeDispatcher) -> Iterator[App]:
    """An app that talks to it."""
    with App("test", fake.address, timeout_s=10) as app:
        yield app
