"""What is shown of a store's URL: never a password, however odd the URL is."""

from __future__ import annotations

import pytest

from longshore.core.urls import redacted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://me:S3cret@host:5432/db?x=1", "postgresql://***@host:5432/db?x=1"),
        ("postgresql://me:S3@cret@host/db", "postgresql://***@host/db"),
        ("postgresql://me:S3cret#PW@host/db", "postgresql://***@host/db"),
        ("postgresql://me:S3cret/x@host/db", "postgresql://***@host/db"),
        ("postgresql://me:S3cret?x@host/db", "postgresql://***@host/db"),
        ("postgresql://me:S3cret@[::bad/db", "postgresql://***@[::bad/db"),
        ("postgresql:/me:S3cret@host/db", "postgresql:/***@host/db"),
        ("postgres:S3cret@host", "postgres:***@host"),
        ("me:S3cret@host", "***@host"),
        ("mysql://me:S3cret@host/db", "mysql://***@host/db"),
        (
            "postgresql://host/db?user=me&password=S3cret@x",
            "postgresql://host/db?user=me&password=***",
        ),
        ("postgresql://host/db?sslpassword=S3cret&x=1", "postgresql://host/db?sslpassword=***&x=1"),
        ("sqlite:////data/me:you@dock/a.db", "sqlite:////data/me:you@dock/a.db"),
        ("", ""),
    ],
)
def test_password_is_never_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown
