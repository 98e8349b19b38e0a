"""What a web service may say of itself."""

from __future__ import annotations

import pytest
from msgspec import structs

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


@pytest.mark.parametrize("kind", ["longshore.callback", "Counter@1"])
def test_kind_that_no_web_worker_runs_is_refused(kind: str) -> None:
    """A turn of an actor needs its class: a service could only fail the actor."""
    with pytest.raises(InvalidInput, match=f"handlers has '{kind}'"):
        check_registration(structs.replace(at("192.0.2.1"), kinds=("work", kind)))
