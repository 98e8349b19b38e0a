"""pydantic models as stored values, and back.

Longshore never imports pydantic, and does not need it: code that hands over a model, or annotates
with one, has imported it already.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any


def is_model(kind: Any) -> bool:
    """Whether this is a class of pydantic's (version 2) models."""
    is_pydantic = isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")
    return is_pydantic and callable(getattr(kind, "model_validate", None))


def to_builtins(value: Any) -> Any:
    """The builtins for a value that msgspec does not know: a model's fields by their names."""
    if is_model(type(value)):
        return value.model_dump(round_trip=True)
    as_text = getattr(value, "unicode_string", None)
    if callable(as_text) and type(value).__module__.startswith("pydantic"):
        return as_text()  # one of its URLs
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def from_builtins(kind: Any, value: Any) -> Any:
    """The model of a stored value; `ValueError` says in one line what does not fit."""
    if not is_model(kind):
        raise TypeError(f"{kind!r} is no pydantic model")
    try:
        return kind.model_validate(value, **_by_either_name(kind))
    except ValueError as error:
        raise ValueError(f"Is no {kind.__name__}: {_told(error)}") from None


@lru_cache(maxsize=1_024)
def _by_either_name(kind: Any) -> dict[str, bool]:
    """Fields are stored by name; a submit from elsewhere may give them by alias."""
    options = inspect.signature(kind.model_validate).parameters
    return {"by_alias": True, "by_name": True} if "by_name" in options else {}


def _told(error: ValueError) -> str:
    faults = error.errors() if hasattr(error, "errors") else []
    if not faults:
        return str(error)
    place = ".".join(str(part) for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}" if place else f"{faults[0]['msg']}{more}"
