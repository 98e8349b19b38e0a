"""Signatures between gateways and web workers."""

from __future__ import annotations

import pytest

from longshore.core.signatures import FROM_SERVICE, is_signed, signature

WHAT = (FROM_SERVICE, "GET", "/health_check/", 1_000, b"{}")


def test_what_is_signed_is_recognised() -> None:
    assert is_signed("secret", signature("secret", *WHAT), *WHAT, 1_001.0)


@pytest.mark.parametrize("given", ["", "é", "\udcff", "0" * 64])
def test_what_is_no_signature_is_refused(given: str) -> None:
    assert not is_signed("secret", given, *WHAT, 1_001.0)
