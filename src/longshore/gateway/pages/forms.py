"""Buttons that first ask in a dialog: for the fields of what they send, and whether they shall.

They need scripts, and are hidden without them. What was typed is sent as the field's kind says; a
field that is left empty is left out. Numbers go as they were typed, so that large ones stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from longshore.gateway.pages.html import Html, h
from longshore.model.worker import Parameter

FieldKind = Literal["text", "number", "integer", "boolean", "json", "choice", "time", "words"]
"""What is typed: `words` are texts with commas between them, `time` is a time in UTC."""
_OF_SCHEMA: Final[dict[str, FieldKind]] = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}


class Field(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One field of a dialog."""

    name: str
    label: str
    kind: FieldKind = "text"
    value: str = ""
    hint: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    whole: bool = False
    """Whether it belongs to the body itself, although others go into a member of it."""


class Dialog(Struct, frozen=True, kw_only=True):
    """What a button asks, and what comes of the answer."""

    title: str
    fields: Sequence[Field] = ()
    words: str = ""
    into: str = ""
    """The member of the body that the fields belong to; without it, the body itself."""
    body: str = ""
    """What else is in the body, as a JSON object."""
    plan: Literal["", "body", "query"] = ""
    """Where `dry_run` goes, if a dry run comes first and is shown."""
    place: str = ""
    """The field whose value is the last part of the address."""
    match: str = ""
    """What `If-Match` says."""
    shows: str = ""
    """The member of the answer that is shown, until it is closed."""
    done: str = ""
    danger: bool = False
    goto: str = ""
    """Where to go afterwards, from the root of the pages."""


def button(words: str, method: str, path: str, dialog: Dialog, *, label: str = "") -> Html:
    """A button that asks by a dialog, and then calls the API at `path`, from the root."""
    asked = msgspec.json.encode(dialog.fields).decode() if dialog.fields else None
    return h(
        "button",
        words,
        type="button",
        class_="action danger" if dialog.danger else "action",
        aria_label=label or None,
        data_method=method,
        data_path=path,
        data_title=dialog.title,
        data_words=dialog.words or None,
        data_fields=asked,
        data_into=dialog.into or None,
        data_body=dialog.body or None,
        data_plan=dialog.plan or None,
        data_place=dialog.place or None,
        data_match=dialog.match or None,
        data_shows=dialog.shows or None,
        data_done=dialog.done or None,
        data_goto=dialog.goto or None,
    )


def fields_of(parameters: Sequence[Parameter]) -> list[Field]:
    """A field for each parameter, by its schema; JSON, if that names no plain type."""
    return [_field_of(one) for one in parameters]


def _field_of(one: Parameter) -> Field:
    schema = _schema(one.schema)
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(item, str) for item in choices):
        kind: FieldKind = "choice"
    else:
        choices = []
        kind = _OF_SCHEMA.get(str(schema.get("type")), "json")
    return Field(
        name=one.name,
        label=one.name,
        kind=kind,
        hint=one.type or kind,
        required=one.required,
        choices=tuple(choices),
    )


def _schema(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
