"""Markup: what is text stays text."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from longshore.gateway.pages.html import h, joined
from longshore.gateway.pages.tree import tree


class _Reader(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


printable = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")))


@given(printable, printable)
def test_no_text_becomes_markup(text: str, value: str) -> None:
    read = _Reader(h("p", text, title=value))
    assert read.tags == [("p", {"title": value})]
    assert read.text == text


def test_what_h_made_is_markup_and_what_is_none_is_left_out() -> None:
    made = h("ul", [h("li", "a & b"), None, joined(h("li", 3))], hidden=True, id=None, class_="x")
    assert made == '<ul hidden class="x"><li>a &amp; b</li><li>3</li></ul>'


def test_characters_that_turn_text_around_are_shown() -> None:
    assert h("p", "a\u202eb\x1b") == "<p>a\\x202eb\\x1b</p>"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | printable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(printable, inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_every_value_is_a_tree_of_known_tags(value: object) -> None:
    known = {"div", "span", "code", "details", "summary", "pre", "p"}
    assert {tag for tag, _ in _Reader(tree(value)).tags} <= known


def test_integers_are_exact() -> None:
    assert str(2**60 + 1) in tree({"n": 2**60 + 1})


def test_a_long_list_says_how_much_it_leaves_out() -> None:
    assert "and 800 more" in tree(list(range(1_000)))
    assert json.dumps("x" * 3_000)[1:-1] in tree({"t": "x" * 3_000})
