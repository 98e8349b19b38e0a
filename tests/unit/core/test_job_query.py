"""The search for jobs, as people type it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.core.job_query import LIVE, JobQuery, parse, term, written
from longshore.model.job import JobState


def test_terms_become_a_value() -> None:
    assert parse('kind:report queue:mail state:failed,ready label:"two words" group:7') == JobQuery(
        kind="report",
        queue="mail",
        states=(JobState.FAILED, JobState.READY),
        labels=("two words",),
        group="7",
    )


def test_a_number_alone_is_a_job() -> None:
    assert parse("4711") == JobQuery(number=4711)


def test_live_stands_for_all_that_has_not_ended() -> None:
    assert parse("state:live").states == LIVE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stat:failed", "there is no term stat:; did you mean state:?"),
        ("state:faild", "there is no state 'faild'; did you mean failed?"),
        ("report", "'report' is no term; write kind:report, or another term with a colon"),
        ("kind:a kind:b", "kind: is given twice; give it once"),
        ("arg:7", "arg: names no argument; write arg.NAME:7"),
    ],
)
def test_what_is_wrong_is_said_in_words(text: str, words: str) -> None:
    assert parse(text).errors == (words,)


def test_the_rest_of_a_search_counts() -> None:
    found = parse("kind:a nonsense queue:b")
    assert (found.kind, found.queue, len(found.errors)) == ("a", "b", 1)


@given(st.text(min_size=1))
def test_any_value_can_be_written_and_read(value: str) -> None:
    assert parse(term("kind", value)).kind == value


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    found = parse(text)
    assert parse(written(found)) == JobQuery(
        **{name: getattr(found, name) for name in JobQuery.__struct_fields__ if name != "errors"}
    )
