"""Values as a tree: what is large is folded, and integers are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from longshore.gateway.pages.html import Html, h

_OPEN_LINES: Final = 12
"""So many values are shown unfolded."""
_MOST_ITEMS: Final = 200
"""Of a list or a map so many items are shown."""
_MOST_CHARS: Final = 2_000
"""Of a text so many characters are shown at first."""
_MOST_DEPTH: Final = 20


def tree(value: Any, name: str = "", depth: int = 0) -> Html:
    """A value and all that it holds."""
    match value:
        case Mapping() if value:
            return _branch(name, [(str(key), item) for key, item in value.items()], "{}", depth)
        case list() | tuple() if value:
            return _branch(name, [(str(at), item) for at, item in enumerate(value)], "[]", depth)
        case _:
            return h("div", _name(name), _leaf(value), class_="leaf")


def _branch(name: str, items: Sequence[tuple[str, Any]], marks: str, depth: int) -> Html:
    if depth >= _MOST_DEPTH:
        return h("div", _name(name), h("span", "nested deeper", class_="muted"), class_="leaf")
    shown = [tree(item, key, depth + 1) for key, item in items[:_MOST_ITEMS]]
    more = len(items) - _MOST_ITEMS
    if more > 0:
        shown.append(h("p", f"and {more:,} more; the API has all", class_="muted"))
    count = h("span", f"{marks[0]}{len(items):,}{marks[1]}", class_="muted")
    is_open = depth == 0 or (len(items) <= _OPEN_LINES and depth < 3)
    return h("details", h("summary", _name(name), count), shown, open=is_open, class_="branch")


def _name(name: str) -> Html | None:
    return h("span", f"{name}: ", class_="key") if name else None


def _leaf(value: Any) -> Html:
    match value:
        case str() if len(value) > _MOST_CHARS:
            size = f" … {len(value):,} characters"
            short = h("summary", h("code", value[:100]), h("span", size, class_="muted"))
            return h("details", short, h("pre", value))
        case str() if "\n" in value:
            return h("pre", value)
        case str():
            return h("code", f'"{value}"', class_="v-text")
        case dict() | list() | tuple():
            return h("code", "{}" if isinstance(value, dict) else "[]")
        case _:
            return h("code", msgspec.json.encode(value).decode(), class_="v-other")
