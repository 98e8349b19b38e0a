"""KEY=VALUE on the command line: a VALUE that is JSON is taken as JSON, any other as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longshore.errors import InvalidInput

_NO_NUMBER = re.compile("[+-]?(nan|NaN|inf|Infinity)")


def values_of(texts: Sequence[str]) -> dict[str, Any]:
    """The values by their keys; raises `InvalidInput` if a key comes twice."""
    pairs: dict[str, Any] = {}
    for text in texts:
        key, value = split(text)
        if key in pairs:
            raise InvalidInput(f"'{key}' is given twice; give each argument once")
        pairs[key] = value_of(key, value)
    return pairs


def split(text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidInput(f"'{text}' is not KEY=VALUE; write it like width=300")
    return key, value


def value_of(key: str, value: str) -> Any:
    """What the text of a value means."""
    try:
        return msgspec.json.decode(value)
    except RecursionError:
        raise InvalidInput(f"'{key}' is nested too deep; make it flatter") from None
    except UnicodeEncodeError:
        raise InvalidInput(f"the value of '{key}' is not UTF-8; write it so") from None
    except msgspec.ValidationError as error:
        said = f"{key}={value}: {str(error).lower()}"
        raise InvalidInput(f"{said}; {_as_text(key, value)}") from None
    except msgspec.DecodeError:
        if _NO_NUMBER.fullmatch(value):
            said = f"{key}={value}: JSON has no such number"
            raise InvalidInput(f"{said}; {_as_text(key, value)}") from None
        return value


def _as_text(key: str, value: str) -> str:
    return f"if text is meant, quote it: {key}='\"{value}\"'"
