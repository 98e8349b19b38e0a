"""Describes the API as an OpenAPI 3.1 document, written from the table of operations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, Struct, structs

from longshore._version import __version__
from longshore.files.documents import UPLOAD_OFFSET
from longshore.gateway.bodies import JSON, NDJSON, OCTETS
from longshore.gateway.ids import MAX_KEY_CHARS
from longshore.gateway.operation import Operation
from longshore.gateway.problems import PROBLEM_TYPE, ProblemDetails
from longshore.gateway.streams import EVENT_STREAM

_REF: Final = "#/components/schemas/{name}"
_PATH: Final = re.compile(r"\{(\w+)\}")
_NUMBER_OR_ID: Final = (
    r"^([0-9]{1,18}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"
)
_PLACES: Final[dict[str, dict[str, Any]]] = {
    "jobs/id": {"pattern": _NUMBER_OR_ID},
    "groups/id": {"pattern": _NUMBER_OR_ID},
    "bulk/id": {"pattern": _NUMBER_OR_ID},
    "workers/id": {"minLength": 1},
    "queues/name": {"pattern": r"^[A-Za-z0-9_.:/@+-]{1,200}$"},
    "limits/pattern": {"pattern": r"^[A-Za-z_][A-Za-z0-9_.-]{0,40}=[A-Za-z0-9]{1,40}\*?$"},
    "limits/key": {"pattern": r"^[A-Za-z_][A-Za-z0-9_.-]{0,40}=[A-Za-z0-9]{1,40}$"},
    "actors/type": {"pattern": r"^[A-Za-z0-9_.:/+-]{1,200}$"},
    "actors/key": {"pattern": r"^[ -~]{1,500}$"},
    "actors/number": {"pattern": r"^[0-9]{1,18}$"},
    "tokens/id": {"pattern": r"^[A-Za-z0-9_.:/@+-]{1,200}$"},
    "groups/key": {"pattern": r"^[A-Za-z0-9_.:@+-]{1,200}$"},
    "filesets/name": {"pattern": r"^[A-Za-z0-9_.:/@+-]{1,200}$"},
    "filesets/version": {"pattern": r"^([0-9]{1,15}|latest)$"},
    "filesets/path": {"minLength": 1},
    "schedules/name": {"pattern": r"^[A-Za-z0-9_.:@+-]{1,200}$"},
    "blobs/sha256": {"pattern": r"^[0-9a-f]{64}$"},
    "requests/verb": {"pattern": r"^[A-Z]{1,40}$"},
}
"""What parts of a path look like, by its heading and their name."""
_OCTETS: Final = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
_ERRORS: Final = {
    400: "The request cannot be accepted as it is.",
    401: "It needs a token, or the token is unknown, expired or revoked.",
    403: "The token does not allow this, or a page of another site sent it.",
    404: "There is no such thing.",
    409: "Another has this id, or it is in a state that does not allow this.",
    413: "The body is too large.",
    415: "The body is in another format.",
    421: "The request names another host.",
    429: "The token makes too many requests.",
    503: "Try again: no dispatcher answers, or the gateway is busy.",
}

_TOKEN: Final = "token"
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `longshore token create`. A gateway on this machine may need none.",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The description of these operations."""
    listed = list(operations)
    schemas = _Schemas(listed)
    paths: dict[str, dict[str, Any]] = {}
    for one in listed:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longshore",
            "version": __version__,
            "description": "A job accepted is a job finished, its outcome recorded once.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": {_TOKEN: _BEARER}},
    }


class _Schemas:
    """The schemas of all types that the operations take and answer."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types: dict[Any, None] = {ProblemDetails: None}
        for one in operations:
            for kind in (one.body, one.ndjson, *one.answers.values()):
                types.update(dict.fromkeys(_alternatives(kind)))
            types[one.query] = None
        self._types = [*types]
        made, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        self._made = dict(zip(self._types, made, strict=True))
        for schema in self.components.values():
            _clean(schema)
        for query in {one.query for one in operations}:
            self.components.pop(query.__name__, None)

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, or of one of several."""
        some = [self._made[one] for one in _alternatives(kind)]
        return some[0] if len(some) == 1 else {"anyOf": some}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union of structs, which JSON tells apart by their fields."""
    if kind is None:
        return ()
    return kind.__args__ if type(kind).__name__ == "UnionType" else (kind,)


def _clean(schema: dict[str, Any]) -> None:
    """Leaves out defaults that JSON cannot hold, and what only we would understand."""
    for field in schema.get("properties", {}).values():
        if isinstance(field, dict):
            field.pop("default", None)


def _operation(one: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.id,
        "summary": one.summary,
        "tags": [one.tag],
        "security": [] if one.needs is None else [{_TOKEN: []}, {}],
        **({} if one.needs is None else {"x-longshore-right": one.needs.value}),
        "parameters": [*_path(one), *_query(one), *_headers(one)],
        "responses": _responses(one, schemas),
    }
    if one.is_octets or one.takes_bytes:
        described["requestBody"] = {"required": True, "content": _OCTETS}
    elif one.body is not None:
        content: dict[str, Any] = {JSON: {"schema": schemas.of(one.body)}}
        if one.ndjson is not None:
            content[NDJSON] = {"schema": {"type": "string"}}
        described["requestBody"] = {"required": not one.may_lack_body, "content": content}
    return described


def _path(one: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", **_PLACES[f"{one.tag}/{name}"]},
        }
        for name in _PATH.findall(one.path)
    ]


def _query(one: Operation) -> list[dict[str, Any]]:
    """The parameters behind the `?`, one for each field."""
    found = []
    for field in structs.fields(one.query):
        schema = _inlined(field.type)
        required = field.default is NODEFAULT and field.default_factory is NODEFAULT
        found.append(
            {"name": field.encode_name, "in": "query", "required": required, "schema": schema}
        )
    return found


def _inlined(kind: Any) -> dict[str, Any]:
    """The schema of a parameter. None is a parameter that is left out, so it is no value of it."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template=_REF)
    schema: dict[str, Any] = _resolved(made, parts)
    return schema


def _resolved(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_resolved(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in schema:
        some = [one for one in schema["anyOf"] if one.get("type") != "null"]
        if len(some) == 1:
            return _resolved(some[0], parts)
    return {name: _resolved(value, parts) for name, value in schema.items()}


def _headers(one: Operation) -> list[dict[str, Any]]:
    found: list[tuple[str, bool, dict[str, Any]]] = []
    if one.method == "POST":
        found.append(("Idempotency-Key", False, {"minLength": 1, "maxLength": MAX_KEY_CHARS}))
    if one.needs_match:
        found.append(("If-Match", True, {"pattern": '^"turn-[0-9]{1,18}"$'}))
    if one.streams:
        found.append(("Last-Event-ID", False, {}))
    if one.answers_bytes:
        found.append(("Range", False, {"pattern": "^bytes=[0-9]{1,15}-[0-9]{0,15}$"}))
    if one.takes_bytes:
        place = "^bytes [0-9]{1,15}-[0-9]{1,15}/[0-9]{1,15}$"
        found.append(("Content-Range", False, {"pattern": place}))
        found.append((UPLOAD_OFFSET, False, {"pattern": "^[0-9]{1,15}$"}))
    return [
        {"name": name, "in": "header", "required": required, "schema": {"type": "string", **more}}
        for name, required, more in found
    ]


def _responses(one: Operation, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in one.answers.items():
        content = {} if kind is None else {JSON: {"schema": schemas.of(kind)}}
        found[str(status)] = {
            "description": _words(kind),
            **({"content": content} if content else {}),
        }
    if one.answers_bytes:
        found["200"] = {"description": "The file.", "content": _OCTETS}
        found["206"] = {"description": "The part that was asked for.", "content": _OCTETS}
        found["304"] = {"description": "It is the one that `If-None-Match` names."}
    if one.is_octets:
        found["200"] = {"description": "The answer, in msgpack.", "content": _OCTETS}
    if one.streams:
        streamed = found.setdefault("200", {"description": f"A stream of events, {one.streams}."})
        streamed.setdefault("content", {})[EVENT_STREAM] = {"schema": {"type": "string"}}
    told = {PROBLEM_TYPE: {"schema": schemas.of(ProblemDetails)}}
    for status, words in _ERRORS.items():
        found[str(status)] = {"description": words, "content": told}
    found["default"] = {"description": "Any other error.", "content": told}
    return found


def _words(kind: Any) -> str:
    some = _alternatives(kind)
    if not some:
        return "There is nothing more to come."
    doc = some[0].__doc__ if isinstance(some[0], type) and issubclass(some[0], Struct) else ""
    return " ".join((doc or "An answer.").split("\n\n")[0].split())
