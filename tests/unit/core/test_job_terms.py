"""The terms of a search that look into jobs."""

from __future__ import annotations

import pytest

from longshore.core.job_query import parse, written
from longshore.model.job import ArgTerm, JobState


def test_a_search_looks_into_arguments_errors_and_times() -> None:
    found = parse('arg.user.id:7 arg.Name:"a b" error:"timed out" older:2h slower:30s state:failed')
    assert found.args == (ArgTerm("user.id", "7"), ArgTerm("Name", "a b"))
    assert (found.error, found.older, found.slower) == ("timed out", "2h", "30s")
    assert found.states == (JobState.FAILED,)
    assert found.errors == ()


def test_a_search_is_written_as_it_was_meant() -> None:
    text = 'kind:x error:"a \\"b\\"" older:2h slower:1m state:failed label:l arg.a.b:"c d"'
    assert parse(written(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("arg:7", "arg.NAME:7"),
        ("error:a error:b", "given twice"),
        ("slover:3s", "did you mean slower:?"),
        ("kind.x:3", "there is no term kind.x:"),
        ("acme", "kind:acme"),
    ],
)
def test_what_is_no_term_is_said_in_words(text: str, word: str) -> None:
    [error] = parse(text).errors
    assert word in error
