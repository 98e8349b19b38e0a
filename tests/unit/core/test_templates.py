"""Templates of programs: where arguments stand, and what they become there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.core.templates import as_text, filled, placeholders
from longshore.errors import InvalidInput
from longshore.model.program import Command, Container, Input, Output, Rule

WHOLE = Container(
    image="trainer:{tag}",
    command=("train", "--epochs={epochs}", "{{literal}}"),
    env={"LEVEL": "{level}"},
    inputs=(Input("set-{tag}", patterns=("{epochs}/**",), path="in/{level}"),),
    outputs=(Output("model-{level}"),),
    secrets=("{not-one}",),
)


def test_placeholders_are_found_everywhere_in_the_order_in_which_they_stand() -> None:
    assert {*placeholders(WHOLE)} == {"tag", "epochs", "level"}
    assert placeholders(Command(argv=("{b}", "{a}{b}"), stdin="{c}")) == ("b", "a", "c")


def test_a_template_is_filled_wherever_a_placeholder_stands() -> None:
    made = filled(WHOLE, {"tag": "2", "epochs": 10, "level": "low"})
    assert made.image == "trainer:2"
    assert made.command == ("train", "--epochs=10", "{literal}")
    assert made.env == {"LEVEL": "low"}
    assert made.inputs == (Input("set-2", patterns=("10/**",), path="in/low"),)
    assert made.outputs == (Output("model-low"),)
    assert made.secrets == ("{not-one}",)


@given(st.text())
def test_an_argument_stays_one_item_whatever_it_holds(text: str) -> None:
    assert filled(Command(argv=("a", "{x}", "b")), {"x": text}).argv == ("a", text, "b")


@given(st.lists(st.text()))
def test_text_without_braces_is_left_as_it_is(words: list[str]) -> None:
    plain = tuple(word.replace("{", "").replace("}", "") for word in ["p", *words])
    assert filled(Command(argv=plain), {}).argv == plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (3, "3"),
        (1.5, "1.5"),
        (True, "true"),
        (None, ""),
        (["a", 1], '["a",1]'),
        ({"a": None}, '{"a":null}'),
    ],
)
def test_other_values_stand_as_json_and_none_as_nothing(value: object, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize("text", ["{", "}", "{}", "{0}", "{a.b}", "{a b}", '{"a": 1}', "{{x}"])
def test_a_brace_that_is_no_placeholder_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is no placeholder; write \{name\} for an argument"):
        placeholders(Command(argv=("x", text)))


def test_rules_are_no_texts_to_be_filled() -> None:
    command = Command(argv=("{x}",), rules=(Rule(outcome="exit"),))  # type: ignore[arg-type]
    assert filled(command, {"x": "a"}).rules == command.rules
