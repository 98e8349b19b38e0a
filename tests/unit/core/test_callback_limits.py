"""What a user may give as a callback: a URL, or its parts; and what is refused."""

from __future__ import annotations

import pytest

from longshore.core.callback_limits import as_callback
from longshore.errors import InvalidInput
from longshore.model.watcher import CallbackWatcher

URL = "https://example.com/hook"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (URL, URL),
        ({"url": URL}, URL),
        ({"hostname": "example.com"}, "http://example.com/"),
        ({"hostname": "example.com", "port": 8080, "path": "/a"}, "http://example.com:8080/a"),
        ({"hostname": "example.com", "port": 443, "path": "a"}, "https://example.com:443/a"),
        ({"hostname": "::1", "port": 1}, "http://[::1]:1/"),
    ],
)
def test_a_callback_is_a_url_or_the_parts_of_one(given: object, url: str) -> None:
    assert as_callback(given) == CallbackWatcher(url)


def test_a_method_and_headers_are_kept() -> None:
    given = {"url": URL, "method": "put", "headers": {"X-Own": "a b"}}
    assert as_callback(given) == CallbackWatcher(URL, "PUT", {"X-Own": "a b"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "give a URL"),
        ({}, "has no url"),
        ({"url": 7}, "give a URL"),
        ({"url": URL, "path": "/"}, "url and path"),
        ({"url": URL, "body": ""}, "'body'"),
        ({"hostname": "example.com", "port": "80"}, "the port"),
        ({"hostname": "example.com", "port": True}, "the port"),
        ({"hostname": "example.com", "path": 1}, "the path"),
        ({"hostname": "user@example.com"}, "password"),
        ({"url": URL, "method": "TRACE"}, "TRACE"),
        ({"url": URL, "method": 1}, "the method"),
        ({"url": URL, "headers": {"a": 1}}, "a map of texts"),
        ({"url": URL, "headers": {"a b": "c"}}, "no name of one"),
        ({"url": URL, "headers": {"webhook-id": "1"}}, "sets it itself"),
        ({"url": URL, "headers": {"Transfer-Encoding": "chunked"}}, "sets it itself"),
        ({"url": URL, "headers": {"a": "b\nc: d"}}, "no header may have"),
        ({"url": URL, "headers": {f"h{n}": "" for n in range(21)}}, "20 are the most"),
        ({"url": URL, "headers": {"a": "b" * 8_000}}, "8,000 characters"),
    ],
)
def test_what_is_no_callback_is_refused_and_named(given: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        as_callback(given)
