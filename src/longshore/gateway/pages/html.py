"""Markup as typed functions: `h("a", "text", href="…")`.

A child that is `Html` is markup; every other text is text, and is escaped. So no text of a job can
become markup, whatever it holds: only `h` and `trusted` make `Html`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from longshore.core.text import visible


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]
Attribute = str | int | bool | None

NOTHING: Final = Html("")
_VOID: Final = frozenset({"input", "link", "meta", "br", "hr", "img"})
_NAMES: Final = {"class_": "class", "for_": "for", "viewbox": "viewBox"}


def h(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """An element. An attribute that is None or False is left out; `data_x` becomes `data-x`."""
    given = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{given}>")
    return Html(f"<{tag}{given}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Html:
    """Children one after the other."""
    return Html("".join(map(_child, children)))


def trusted(markup: str) -> Html:
    """Markup that holds nothing from outside."""
    return Html(markup)


def _child(child: Child) -> str:
    match child:
        case Html():
            return child
        case str():
            return escape(visible(child), quote=False)
        case None:
            return ""
        case int():
            return str(child)
        case _:
            return "".join(map(_child, child))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    shown = _NAMES.get(name) or name.replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{escape(visible(str(value)))}"'
