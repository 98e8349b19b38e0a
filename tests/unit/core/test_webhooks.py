"""Signatures: what Longshore signs, the library of receivers verifies, and nothing else."""

from __future__ import annotations

import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from longshore.core.webhooks import callback_key, key_of_text, secret_text, signed_headers

KEY = callback_key(b"secret of a store")


def test_what_is_signed_is_verified() -> None:
    headers = signed_headers(KEY, "msg-1", int(time.time()), b'{"a": 1}')
    assert Webhook(secret_text(KEY)).verify(b'{"a": 1}', headers) == {"a": 1}


@pytest.mark.parametrize("secret", [callback_key(b"another"), b"x" * 32])
def test_another_key_is_noticed(secret: bytes) -> None:
    headers = signed_headers(KEY, "msg-1", int(time.time()), b"{}")
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(secret)).verify(b"{}", headers)


def test_another_body_is_noticed() -> None:
    headers = signed_headers(KEY, "msg-1", int(time.time()), b"{}")
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(KEY)).verify(b"[]", headers)


def test_a_secret_is_text_or_base64() -> None:
    assert key_of_text(secret_text(KEY)) == KEY
    assert key_of_text("hush") == b"hush"
