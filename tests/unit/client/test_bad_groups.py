"""Groups that nobody means: a clear and short error at once, and no dispatcher hears of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longshore import App
from longshore.client.group import GroupBuilder
from longshore.client.group_file import read_group
from longshore.client.ids import fresh_id
from longshore.errors import InvalidInput

from .fake import FakeDispatcher
from .test_groups import Kinds, sent

MILLION = 1_000_000
MEGABYTE = "k" * MILLION
SHORT = 700

Adding = Callable[[GroupBuilder, Kinds], object]

BAD: dict[str, tuple[Adding, str]] = {
    "a million unknown dependencies of one job": (
        lambda group, kinds: group.add(
            kinds.fetch.call("u"), after=[f"n{n}" for n in range(MILLION)]
        ),
        "depends on 'n0', which the group does not have",
    ),
    "a key of a megabyte": (
        lambda group, kinds: group.add(kinds.fetch.call("u"), key=MEGABYTE),
        "the key has 1,000,000 characters; 200 are allowed",
    ),
    "a dependency of a megabyte": (
        lambda group, kinds: group.add(kinds.fetch.call("u"), after=MEGABYTE),
        "which the group does not have",
    ),
    "a sub-group of a megabyte": (
        lambda group, kinds: group.sub(MEGABYTE).add(kinds.fetch.call("u")),
        "characters; 200 are allowed",
    ),
    "a gate of a megabyte": (
        lambda group, kinds: group.gate(MEGABYTE),
        "the key has 1,000,000 characters; 200 are allowed",
    ),
    "a map of a megabyte": (
        lambda group, kinds: group.map(kinds.fetch, over=["u"], key=MEGABYTE),
        "the key has 1,000,000 characters; 200 are allowed",
    ),
}


@pytest.fixture
def kinds(app: App) -> Kinds:
    return Kinds(app)


@pytest.mark.parametrize("what", BAD)
def test_a_group_past_every_measure_is_refused_in_a_few_words(
    app: App, fake: FakeDispatcher, kinds: Kinds, what: str
) -> None:
    add, said = BAD[what]

    def submit() -> None:
        with app.group("huge") as group:
            group.add(kinds.fetch.call("u"))
            add(group, kinds)

    with pytest.raises(InvalidInput) as raised:
        submit()
    assert said in str(raised.value)
    assert len(str(raised.value)) < SHORT
    assert not fake.requests


def test_a_dependency_that_is_named_a_million_times_is_one(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("one edge") as group:
        first = group.add(kinds.fetch.call("u"))
        group.add(kinds.fetch.call("v"), after=[first] * MILLION)
    assert [node.after for node in sent(fake).part.nodes] == [(), (0,)]
    assert sent(fake).edges == 1


LAUGHS = """
name: x
a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]
b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
jobs: *d
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS, "aliases (*) and anchors (&) are not allowed"),
        (f"name: x\njobs:\n  - {{kind: a, key: {MEGABYTE}}}", "200 are allowed"),
        (f"name: x\njobs:\n  - {{kind: a, after: {MEGABYTE}}}", "which the group does not have"),
        (f"name: x\njobs:\n  - {{kind: a, ? {MEGABYTE} : 1}}", "a job has no"),
        (f"name: {MEGABYTE}\njobs: []", "200 are allowed"),
        ("name: x\njobs: " + "[" * MILLION, "nested too deep"),
    ],
    ids=["laughs", "a key", "a dependency", "a field", "a name", "a depth"],
)
def test_a_file_past_every_measure_is_refused_in_a_few_words(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_group("flow.yaml", text.encode()).in_order(fresh_id, {})
    assert said in str(raised.value)
    assert len(str(raised.value)) < SHORT
