"""The description of the API is whole, and holds for what is answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec

from longshore.gateway.openapi import document
from longshore.gateway.routes import OPERATIONS

from .api import Api

DOCS = Path(__file__).parents[3] / "docs"


def references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if "$ref" in schema else set[str]()
        return own.union(*(references(one) for one in schema.values()))
    return set[str]().union(*map(references, schema)) if isinstance(schema, list) else set()


async def test_the_description_is_served_and_names_only_what_is_there(api: Api) -> None:
    reply = await api.get("/openapi.json")
    described = reply.json
    assert described["openapi"].startswith("3.1")
    known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert references(described) <= known


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [one.id for one in OPERATIONS]
    assert len(names) == len(set(names))
    listed = document(OPERATIONS)["paths"]
    assert sum(len(methods) for methods in listed.values()) == len(OPERATIONS)


def test_every_operation_is_in_the_docs() -> None:
    page = (DOCS / "http.md").read_text()
    rows = set(re.findall(r"`(GET|POST|PUT|DELETE) ([^`?]+)[^`]*`", page))
    assert {(one.method, one.path) for one in OPERATIONS} <= rows


async def test_answers_are_what_is_described(api: Api) -> None:
    """With unknown fields forbidden, too; the other half is done by schemathesis."""
    job = await api.post("/dispatcher/jobs/", {"kind": "add", "args": {"a": 1, "b": 2}})
    await api.kit.drain_async()
    target = f"/dispatcher/jobs/{job.json['id']}"
    for one in OPERATIONS:
        if (
            one.method == "GET"
            and one.path.startswith("/dispatcher/jobs/{id}")
            and 200 in one.answers
        ):
            reply = await api.get(one.path.replace("/dispatcher/jobs/{id}", target))
            # Of several, the first is what is answered unless a parameter asks for another.
            kind = (get_args(one.answers[200]) or (one.answers[200],))[0]
            msgspec.convert(reply.json, kind)
            assert reply.json.keys() == set(kind.__struct_fields__), one.id
