"""The search for jobs as people type it: `kind:report queue:mail state:failed`.

A term is a name, a colon and a value; a value with spaces is in quotes. A number alone is that of a
job. What is wrong is said in words, for the person who typed it, and the rest of the search counts.
`arg.user.id:7` looks into arguments, `error:` into what went wrong; `older:2h` came at least so
long ago, `slower:30s` ran or runs for at least so long.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from longshore.core.lifecycle import TERMINAL
from longshore.model.job import ArgTerm, JobState

_ONCE: Final = ("kind", "queue", "worker", "group", "since", "older", "slower", "error")
TERMS: Final = (*_ONCE, "state", "label", "arg")
_TOKEN: Final = re.compile(r'(?:([a-z_][\w.]*):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))', re.IGNORECASE)
LIVE: Final = tuple(state for state in JobState if state not in TERMINAL)
_SEVERAL: Final = {"live": LIVE, "ended": tuple(state for state in JobState if state in TERMINAL)}
"""Words that stand for several states."""


class JobQuery(Struct, frozen=True, kw_only=True):
    """What a search asks for. `number` is that of the one job that it names."""

    number: int | None = None
    kind: str | None = None
    queue: str | None = None
    states: tuple[JobState, ...] = ()
    labels: tuple[str, ...] = ()
    worker: str | None = None
    group: str | None = None
    since: str | None = None
    older: str | None = None
    slower: str | None = None
    error: str | None = None
    args: tuple[ArgTerm, ...] = ()
    errors: tuple[str, ...] = ()
    """What could not be understood, in words."""


def parse(text: str) -> JobQuery:
    """The search that a text stands for."""
    found: dict[str, str] = {}
    states: list[JobState] = []
    labels: list[str] = []
    args: list[ArgTerm] = []
    errors: list[str] = []
    for match in _TOKEN.finditer(text):
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        name, _, path = (name or "").partition(".")
        name = name.lower()
        if name == "arg" and path:
            args.append(ArgTerm(path, value))
        elif name == "state":
            _add_states(value, states, errors)
        elif name == "label":
            labels.append(value)
        elif not name and value.isdecimal() and len(value) < 19:
            found["number"] = value
        elif problem := _problem(f"{name}.{path}" if path else name, value, found):
            errors.append(problem)
        else:
            found[name] = value
    number = found.pop("number", None)
    return JobQuery(
        number=None if number is None else int(number),
        states=tuple(dict.fromkeys(states)),
        labels=tuple(labels),
        args=tuple(args),
        errors=tuple(errors),
        **found,
    )


def _add_states(value: str, states: list[JobState], errors: list[str]) -> None:
    for word in value.lower().split(","):
        if word in _SEVERAL:
            states += _SEVERAL[word]
        elif word in list(JobState):
            states.append(JobState(word))
        else:
            near = get_close_matches(word, [*JobState, *_SEVERAL], n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(JobState)}"
            errors.append(f"there is no state '{word}'; {advice}")


def _problem(name: str, value: str, found: dict[str, str]) -> str:
    """Why a term cannot count; empty if it can."""
    if not name:
        return f"'{value}' is no term; write kind:{value}, or another term with a colon"
    if name == "arg":
        return f"arg: names no argument; write arg.NAME:{value}"
    if name not in _ONCE:
        near = get_close_matches(name, TERMS, n=1)
        advice = f"did you mean {near[0]}:?" if near else f"there are {': '.join(TERMS)}:"
        return f"there is no term {name}:; {advice}"
    return f"{name}: is given twice; give it once" if name in found else ""


def written(query: JobQuery) -> str:
    """The search as a text that means the same."""
    terms = [] if query.number is None else [str(query.number)]
    for name in _ONCE:
        if (value := getattr(query, name)) is not None:
            terms.append(term(name, value))
    if query.states:
        terms.append(f"state:{','.join(query.states)}")
    terms += [term("label", one) for one in query.labels]
    return " ".join([*terms, *(term(f"arg.{one.path}", one.value) for one in query.args)])


def term(name: str, value: str) -> str:
    """One term of a search."""
    if value and not re.search(r'[\s"]', value):
        return f"{name}:{value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}:"{escaped}"'
