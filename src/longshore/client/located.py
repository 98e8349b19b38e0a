"""Values of a YAML or JSON file, each with the line it stands in.

YAML is read as its version 1.2 has it: `on`, `yes` and `2026-11-16` are text, and every JSON file
is a YAML file. Aliases, anchors and tags are refused, so that a small file stays small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from longshore.errors import InvalidInput

MAX_DEPTH: Final = 50

_NOTHING: Final = re.compile("|~|null|Null|NULL")
_TRUTH: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE: Final = re.compile("[-+]?[0-9]+")
_OTHER_WHOLE: Final = re.compile("0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_PAIR: Final = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


class Entry(NamedTuple):
    """A value: text, a number, a truth value or None; a list of entries, or entries by name.

    `line` counts from 1. For an entry with a name it is the line of the name. `given` is the text
    of a value that came from the command line.
    """

    value: Any
    line: int
    given: str | None = None


def at(file: str, line: int, what: str) -> InvalidInput:
    """The error for what is wrong in a line of a file; 0 is no line in particular."""
    return InvalidInput(f"{file}, line {line}: {what}" if line else f"{file}: {what}")


def read(file: str, data: bytes) -> Entry:
    """What a file holds; raises `InvalidInput` naming the file and the line if it cannot be."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise at(file, line, "it is not UTF-8; save it so") from None
    if file.endswith(".json"):
        text = _checked_json(file, text)
    try:
        return _Reader(file, text).document()
    except yaml.YAMLError as error:
        raise _not_yaml(file, text, error) from None


def _checked_json(file: str, text: str) -> str:
    """The text of a JSON file, as YAML reads it: without tabs, and halves of characters joined."""
    data = text.encode()
    try:
        msgspec.json.decode(data)
    except RecursionError:
        raise InvalidInput(f"{file} is nested too deep; {MAX_DEPTH} levels are allowed") from None
    except msgspec.DecodeError as error:
        found = _BYTE.search(str(error))
        line = data.count(b"\n", 0, int(found[1])) + 1 if found else 1
        raise at(file, line, f"it is not JSON: {error}") from None
    return _PAIR.sub(_joined, text.replace("\t", " "))


def _joined(found: re.Match[str]) -> str:
    high, low = int(found[2], 16), int(found[3], 16)
    return found[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _not_yaml(file: str, text: str, error: yaml.YAMLError) -> InvalidInput:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        return at(file, mark.line + 1 if mark else 1, f"it is not YAML: {what}")
    position = getattr(error, "position", 0)
    line = text.count("\n", 0, position) + 1
    return at(file, line, "it has a character that YAML does not allow")


class _Reader:
    """Turns the events of a YAML parser into entries."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))

    def document(self) -> Entry:
        """The one document of the file."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise at(self._file, 1, "it is empty")
        found = self._entry(next(self._events), 1)
        next(self._events)
        another = next(self._events)
        if not isinstance(another, yaml.StreamEndEvent):
            raise self._wrong(another, "a second document begins; give each a file of its own")
        return found

    def _wrong(self, event: Any, what: str) -> InvalidInput:
        return at(self._file, _line(event), what)

    def _entry(self, event: Any, depth: int) -> Entry:
        if depth > MAX_DEPTH:
            raise self._wrong(event, f"it is nested too deep; {MAX_DEPTH} levels are allowed")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._wrong(event, "aliases (*) and anchors (&) are not allowed; write it out")
        if event.tag is not None:
            raise self._wrong(event, f"the tag {event.tag} is not allowed; leave it out")
        if isinstance(event, yaml.MappingStartEvent):
            return Entry(self._named(depth), _line(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return Entry(self._listed(depth), _line(event))
        return Entry(self._scalar(event), _line(event))

    def _listed(self, depth: int) -> list[Entry]:
        found: list[Entry] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._entry(event, depth + 1))
        return found

    def _named(self, depth: int) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
                raise self._wrong(event, "a name must be plain text")
            if event.value in found:
                raise self._wrong(event, f"'{event.value}' is there twice; leave one out")
            value = self._entry(next(self._events), depth + 1).value
            found[event.value] = Entry(value, _line(event))
        return found

    def _scalar(self, event: Any) -> object:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if _NOTHING.fullmatch(text):
            return None
        if text in _TRUTH:
            return _TRUTH[text]
        if _NO_NUMBER.fullmatch(text):
            raise self._wrong(event, f"{text} is no number that a job can get; leave it out")
        try:
            if _WHOLE.fullmatch(text):
                return int(text)
            if _OTHER_WHOLE.fullmatch(text):
                return int(text, 0)
            return float(text) if _FLOAT.fullmatch(text) else text
        except ValueError:
            raise self._wrong(event, "this number has too many digits; quote it") from None


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1
