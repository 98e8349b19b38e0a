"""The page of the HTTP API: what `/openapi.json` says, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from longshore.gateway.openapi import document
from longshore.gateway.routes import OPERATIONS

Schema = Mapping[str, Any]

_INTRODUCTION = """# The HTTP API

{note}
Every operation, with all that it takes and answers. A gateway describes itself in the same way, for
programs, at `/openapi.json` (OpenAPI 3.1). [HTTP](../http.md) has examples, and says how errors,
lists, streams and repeats work.

Any operation may answer with an error, as [problem details](#problemdetails).
"""


def http_api(note: str) -> str:
    """The page."""
    described = document(OPERATIONS)
    parts = [_INTRODUCTION.format(note=note)]
    for tag, some in groupby(OPERATIONS, key=lambda one: one.tag):
        parts.append(f"## {tag.capitalize()}\n")
        for one in some:
            parts += _operation(one.method, one.path, described["paths"][one.path])
    parts.append("## What bodies hold\n")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += _body(name, schema)
    return "\n".join(parts)


def _operation(method: str, path: str, methods: Schema) -> Iterator[str]:
    one = methods[method.lower()]
    yield f"### `{method} {path}`\n"
    yield f"{one['summary']}\n"
    parameters = [given for given in one["parameters"] if given["in"] != "path"]
    if parameters:
        yield "| parameter | in | type |\n|---|---|---|"
        for given in parameters:
            needed = " (required)" if given["required"] else ""
            yield f"| `{given['name']}` | {given['in']}{needed} | {_type(given['schema'])} |"
        yield ""
    if "requestBody" in one:
        may = "" if one["requestBody"]["required"] else ", which may be left out"
        yield f"Takes {_contents(one['requestBody']['content'])}{may}.\n"
    good = {code: told for code, told in one["responses"].items() if code.startswith("2")}
    answers = [f"{code} with {_contents(told.get('content', {}))}" for code, told in good.items()]
    yield f"Answers {'; '.join(answers)}.\n"


def _contents(content: Schema) -> str:
    some = [
        f"{_type(one['schema'])} ({name})" if name != "application/json" else _type(one["schema"])
        for name, one in content.items()
    ]
    return ", or ".join(some) or "nothing"


def _body(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    if text := schema.get("description"):
        yield f"{' '.join(text.split())}\n"
    if "properties" not in schema:
        yield f"{_type(schema)}\n"
        return
    needed = set(schema.get("required", ()))
    yield "| field | type |\n|---|---|"
    for field, kind in schema["properties"].items():
        yield f"| `{field}`{' (required)' if field in needed else ''} | {_type(kind)} |"
    yield ""


def _type(schema: Schema) -> str:
    """The type of a value, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "any value"))
    if kind == "array":
        return f"list of {_type(schema.get('items') or schema.get('prefixItems', [{}])[0])}"
    if kind == "object" and isinstance(of := schema.get("additionalProperties"), Mapping):
        return f"object of {_type(of)}"
    return " ".join([_PLAIN.get(kind, kind), *_bounds(schema)])


_PLAIN = {"string": "text", "integer": "whole number", "null": "null"}


def _bounds(schema: Schema) -> Iterator[str]:
    """What else is known of a value."""
    if form := schema.get("format") or schema.get("contentEncoding"):
        yield f"({form})"
    words = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "up to {}"}
    words |= {"maxLength": "of at most {} characters"}
    for key, text in words.items():
        if (value := schema.get(key)) is not None:
            yield text.format(f"{value:,}" if isinstance(value, int) else f"{value:,.0f}")
