"""Keys of jobs in groups."""

from __future__ import annotations

import pytest

from longshore.core.keys import Keys, prefixes, within_key
from longshore.errors import InvalidInput


def test_a_job_without_a_key_gets_the_first_that_is_free() -> None:
    keys = Keys()
    keys.take("fetch-2")
    for wanted in ("fetch", "fetch-3", "fetch-4"):
        assert keys.next_of("fetch") == wanted
        keys.take(wanted)
    assert keys.next_of("text/pack", "sub") == "sub/text.pack"
    assert "fetch" in keys
    assert "pack" not in keys


def test_the_prefixes_of_a_key_are_its_subgroups() -> None:
    assert list(prefixes("a/b/c")) == ["a/b", "a"]
    assert list(prefixes("a")) == []


def test_a_key_cannot_be_that_of_a_subgroup() -> None:
    keys = Keys()
    for key in ("ab", "a/b", "a/c"):
        keys.take(key)
    keys.check()
    keys.take("a")
    with pytest.raises(InvalidInput, match="the key 'a' is of a job, and 'a/b' lies below it"):
        keys.check()


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [("a", ["a", "a/b", "a/b/c"], ["ab", "b/a"]), ("a/", ["a/b", "a/b/c"], ["a", "ab"])],
)
def test_a_prefix_names_what_is_below_it(key: str, inside: list[str], outside: list[str]) -> None:
    assert all(within_key(key, other) for other in inside)
    assert not any(within_key(key, other) for other in outside)
