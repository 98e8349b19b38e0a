"""Text from outside cannot steer a terminal when it is shown."""

from __future__ import annotations

import json

import pytest

from longshore.core.text import visible, visible_entry, visible_json

HOSTILE = "\x00\x07\x0b\x1b\x7f\x80\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"


@pytest.mark.parametrize("char", HOSTILE)
def test_what_could_steer_a_terminal_is_written_out(char: str) -> None:
    text = f"a{char}b"
    for shown in (visible(text), visible_entry(text), visible_json(json.dumps(text))):
        assert char not in shown
    document = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(visible_json(document)) == {"text": text}


def test_other_text_stays_as_it_is() -> None:
    text = "tabs\tand lines\n\u65e5\u672c \u00e9"
    assert visible(text) == text
    assert visible_json(text) == text


def test_an_entry_of_a_log_has_no_second_line_that_looks_like_another() -> None:
    entry = visible_entry("x\n2026-01-01T00:00:00.000Z ERROR forged")
    assert entry == "x\n    2026-01-01T00:00:00.000Z ERROR forged"
