"""What a web service may say of itself."""

from __future__ import annotations

import pytest

from longshore.core.web_workers import check_registration
from longshore.errors import InvalidInput
from longshore.model.web_worker import WebRegistration


def at(host: str) -> WebRegistration:
    return WebRegistration(host=host, port=8080, kinds=("work",), max_jobs=2)


@pytest.mark.parametrize("host", ["é", "xn--a", "a.xn--.example", "", "a/b", "a b", "a@b"])
def test_host_that_cannot_be_called_is_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match="hostname"):
        check_registration(at(host))


@pytest.mark.parametrize("host", ["192.0.2.1", "::1", "worker_1.internal", "xn--mnchen-3ya.de"])
def test_name_or_address_may_register(host: str) -> None:
    check_registration(at(host))
