"""An actor's class, read once: its state, its handlers, and which handler an event goes to.

    class Door:
        state: str = "shut"           fields are the state; the one called `state` has the named one
        opened: int = 0

        def start(self, ctx): …       what takes `ctx` first is a handler
        def open(self, ctx): …        of the message of its name
        def on_timer_shut(self, ctx): …       or of the timer
        def label(self): …            anything else is a method like any other

A handler with `@when("shut")` gets its event in that named state only. One without is for all other
states.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from longshore.client.handler import pool_for
from longshore.client.signature import CONTEXT_PARAMETER, Signature
from longshore.core.actor_limits import MAX_VERSION, check_listed_names
from longshore.core.turns import TIMER_PREFIX
from longshore.errors import AppError, InvalidArguments, InvalidInput, WrongState
from longshore.model.worker import Isolation, Parameter
from longshore.payload import values
from longshore.payload.annotation_schema import schema_of
from longshore.payload.listed import listed_values
from longshore.payload.pydantic_values import from_builtins
from longshore.payload.schemas import explain, nearest

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

START: Final = "start"
MOVED: Final = "moved"
UNHANDLED: Final = "unhandled"
UNDELIVERED: Final = "undelivered"
FAILED: Final = "failed"
RUN: Final = "run"
"""A handler that is called so, and needs no arguments, also takes what nothing else does."""
MIGRATE: Final = "migrate"
NAMED_STATE: Final = "state"
HOOKS: Final = frozenset({START, MOVED, UNHANDLED, UNDELIVERED, FAILED})
"""Methods that the system calls. No message has such a name."""

_WHEN: Final = "__longshore_when__"
_READS: Final = "__longshore_reads__"
_ANY_STATE: Final = ""


def when(*states: str, handles: str = "") -> Callable[[F], F]:
    """Makes a handler of an actor one for these named states only (see `ctx.become`).

    `handles` names the message or the `on_timer_…` that it handles, if it is called otherwise: two
    methods of a class cannot have one name.
    """
    if not states or not all(states):
        raise AppError("@when(…) needs the names of states, like @when('open')")

    def mark(function: F) -> F:
        setattr(function, _WHEN, (states, handles))
        return function

    return mark


def reads(function: F) -> F:
    """Makes a method of an actor one that reads: `ref.read` calls it on the committed state.

    It never waits for a turn, and cannot change anything.
    """
    setattr(function, _READS, True)
    return function


class ActorHandlers:
    """The handlers of one class, by event and named state."""

    def __init__(self, type: str, of: type) -> None:
        self.type = type
        self._found: dict[str, dict[str, str]] = {}
        self._signatures: dict[str, Signature] = {}
        self._reads: dict[str, Signature] = {}
        self.is_async = False
        for name, function in _methods(of):
            if getattr(function, _READS, False):
                self._add_reading(name, function)
            else:
                self._add(name, function)
        self.states = frozenset(state for some in self._found.values() for state in some if state)
        """The named states that handlers are for."""
        self.messages = sorted(
            name for name in self._found if name not in HOOKS and not name.startswith(TIMER_PREFIX)
        )
        """The messages that are handled, in whatever state."""

    def _add_reading(self, name: str, function: Callable[..., Any]) -> None:
        what = f"actor '{self.type}': '{name}', which reads"
        if name in HOOKS or name.startswith(TIMER_PREFIX) or hasattr(function, _WHEN):
            raise AppError(f"{what}: @reads is for messages, in whatever state, not for '{name}'")
        self._reads[name] = self._signature(f"{self.type}.{name}", function, what)

    def _add(self, name: str, function: Callable[..., Any]) -> None:
        states, handles = getattr(function, _WHEN, ((_ANY_STATE,), ""))
        event = handles or name
        if event in HOOKS and states != (_ANY_STATE,):
            raise AppError(f"actor '{self.type}': @when is for messages and timers, not '{event}'")
        for state in states:
            other = self._found.setdefault(event, {}).setdefault(state, name)
            if other != name:
                where = f" when '{state}'" if state else ""
                raise AppError(
                    f"actor '{self.type}': '{other}' and '{name}' both handle '{event}'{where}"
                )
        what = f"actor '{self.type}': {_called(event)}"
        self._signatures[name] = self._signature(f"{self.type}.{event}", function, what)

    def _signature(self, name: str, function: Callable[..., Any], what: str) -> Signature:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise AppError(f"{what}: its handler is a generator; return a value instead")
        self.is_async = self.is_async or inspect.iscoroutinefunction(function)
        return Signature(name, function, what=what, skip=2)

    @property
    def given(self) -> tuple[str, ...]:
        """The resources that handlers ask for."""
        all_of = (*self._signatures.values(), *self._reads.values())
        return tuple({name for one in all_of for name in one.given})

    def find(self, event: str, state: str) -> str | None:
        """The method for an event in a named state; None if there is none."""
        found = self._found.get(event, {})
        return found.get(state) or found.get(_ANY_STATE)

    def touch(self, state: str) -> str | None:
        """The method that a message without a handler touches; None if there is none.

        It is `run`, unless that needs arguments. The class may rather have `unhandled`.
        """
        method = None if self.has(UNHANDLED) else self.find(RUN, state)
        if method is None:
            return None
        needed = [one for one in self._signatures[method].parameters() or () if one.required]
        return None if needed else method

    @property
    def takes_any(self) -> bool:
        """Whether it takes messages and timers without a handler of their own, in some state."""
        states = self._found.get(RUN, {})
        return self.has(UNHANDLED) or any(self.touch(state) is not None for state in states)

    @property
    def events(self) -> list[str]:
        """The messages, timers and hooks that are handled."""
        return list(self._found)

    def any_of(self, event: str) -> str:
        """One of the methods for an event that is handled in some state."""
        return next(iter(self._found[event].values()))

    def has(self, event: str) -> bool:
        """Whether the event is handled, in whatever state."""
        return event in self._found

    def signature(self, method: str) -> Signature:
        """The parameters of a method that handles something, without `self` and `ctx`."""
        return self._signatures[method]

    def only_reads(self, name: str) -> bool:
        """Whether it is the name of a handler that reads."""
        return name in self._reads

    def read_signature(self, name: str) -> Signature:
        """The parameters of a handler that reads; raises `InvalidArguments` if there is none."""
        if name not in self._reads:
            there = ", ".join(sorted(self._reads)) or "none"
            raise InvalidArguments(
                f"actor '{self.type}' has no handler '{name}' that reads"
                f"{nearest(name, self._reads)}; those marked with @longshore.reads are: {there}"
            )
        return self._reads[name]

    def advertised(self) -> dict[str, tuple[Parameter, ...] | None] | None:
        """What each message takes, None if that depends on the state; None if it handles any."""
        if self.takes_any:
            return None
        return {name: self._parameters(name) for name in self.messages}

    def _parameters(self, message: str) -> tuple[Parameter, ...] | None:
        methods = set(self._found[message].values())
        found = {self._signatures[one].parameters() for one in methods}
        return found.pop() if len(found) == 1 else None

    def signature_of(self, message: str) -> Signature | None:
        """The parameters of a message; None if it takes any that has no handler of its own.

        Raises `InvalidArguments` if nothing handles it.
        """
        if message in self._reads:
            raise InvalidArguments(
                f"'{message}' of actor '{self.type}' only reads; call it with ref.read('{message}')"
            )
        if message not in self.messages and self.takes_any:
            return None
        if message not in self.messages:
            there = ", ".join(self.messages) or "none"
            raise InvalidArguments(
                f"actor '{self.type}' has no message '{message}'{nearest(message, self.messages)}; "
                f"it has: {there}"
            )
        return self._signatures[self.any_of(message)]


class ActorClass(Generic[S]):
    """A user's class as an actor: what `@app.actor` makes of it."""

    def __init__(
        self,
        type: str,
        of: type[S],
        version: int = 1,
        isolation: Isolation | None = None,
        listed: Sequence[str] = (),
    ) -> None:
        if not 1 <= version <= MAX_VERSION:
            raise AppError(
                f"actor '{type}': version is {version!r}; give a number from 1 to {MAX_VERSION:,}"
            )
        self.type = type
        self.version = version
        self.of = _with_fields(type, of)
        self.handlers = ActorHandlers(type, of)
        self.pool = pool_for(f"actor '{type}'", isolation, self.handlers.is_async)
        self._fields = tuple(_fields(self.of))
        self.listed = _listed(type, listed, self._fields)
        if self.handlers.states and NAMED_STATE not in self._fields:
            raise AppError(
                f"actor '{type}': handlers with @when need the field that has the named state; "
                f'give the class one, like {NAMED_STATE}: str = "{min(self.handlers.states)}"'
            )
        if version > 1 and not callable(getattr(of, MIGRATE, None)):
            raise AppError(
                f"actor '{type}': version {version} needs a way from older states: write "
                f"@classmethod def {MIGRATE}(cls, state: dict, version: int) -> dict"
            )

    def parameters(self) -> tuple[Parameter, ...]:
        """The fields of its state, as a worker advertises them."""
        hints = _hints(self.of)
        return tuple(
            _parameter(name, needed, hints.get(name, Any))
            for name, needed in _fields(self.of).items()
        )

    # its state

    def new(self, given: Mapping[str, object]) -> S:
        """The state that it starts with; raises `InvalidArguments` if the fields do not fit."""
        unknown = next((name for name in given if name not in self._fields), None)
        if unknown is not None:
            raise InvalidArguments(
                f"actor '{self.type}' has no field '{unknown}'{nearest(unknown, self._fields)}; it "
                f"has: {', '.join(self._fields) or 'none'}"
            )
        missing = [
            name for name, needed in _fields(self.of).items() if needed and name not in given
        ]
        if missing:
            raise InvalidArguments(
                f"actor '{self.type}' cannot start without '{missing[0]}'; give {missing[0]}=…"
            )
        try:
            return self.of(**given)
        except TypeError as error:
            raise InvalidArguments(f"actor '{self.type}' cannot start: {error}") from None

    def pack(self, state: S) -> bytes:
        """The state as it is stored; raises if it cannot be, or is not what its fields say."""
        whole = {name: getattr(state, name) for name in self._fields}
        data = values.pack(whole, f"the state of actor '{self.type}'")
        self._convert(values.unpack(data))
        return data

    def listed_values(self, data: bytes) -> dict[str, str] | None:
        """What an actor with this state, packed, is listed by; None if its class says nothing."""
        return listed_values(self.type, data, self.listed) if self.listed else None

    def check_listed(self, names: Iterable[str]) -> None:
        """Raises `InvalidInput` if its actors are not listed by one of these fields."""
        for name in names:
            if name not in self.listed:
                raise InvalidInput(
                    f"actor '{self.type}' is not listed by '{name}'{nearest(name, self.listed)}; "
                    f"it is listed by: {', '.join(self.listed) or 'no field'}. Say so with "
                    f"@app.actor(listed=…)"
                )

    def unpack(self, data: bytes, version: int) -> S:
        """A stored state, brought forward if it is of an older version.

        Raises `WrongState` if it is of a newer one: what only that knows would get lost.
        """
        if version > self.version:
            raise WrongState(
                f"the state of this '{self.type}' is of version {version}, and the class here is "
                f"of version {self.version}; use a program with the newer class"
            )
        raw = values.unpack(data)
        if version < self.version:
            raw = getattr(self.of, MIGRATE)(dict(raw), version)
        return self._convert(raw)

    def edited(self, data: bytes, version: int, changes: Mapping[str, object]) -> bytes:
        """A stored state with some fields changed, as it is stored."""
        state = self.unpack(data, version)
        self.new({**{name: getattr(state, name) for name in self._fields}, **changes})
        for name, value in changes.items():
            setattr(state, name, value)
        return self.pack(state)

    def _convert(self, raw: object) -> S:
        try:
            return msgspec.convert(raw, self.of, dec_hook=from_builtins)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the state of actor '{self.type}' {explain(error)}") from None

    def named_state(self, state: S) -> str:
        """The named state that it is in; empty if its class has none."""
        return str(getattr(state, NAMED_STATE)) if self.handlers.states else _ANY_STATE


def _listed(type: str, listed: Sequence[str], fields: Sequence[str]) -> tuple[str, ...]:
    if isinstance(listed, str) or not all(isinstance(name, str) for name in listed):
        raise AppError(
            f"actor '{type}': listed is {listed!r}; give names of fields, like ('plan',)"
        )
    for name in listed:
        if name not in fields:
            raise AppError(
                f"actor '{type}' is to be listed by '{name}', which is no field of it"
                f"{nearest(name, fields)}"
            )
    try:
        check_listed_names(f"actor '{type}'", listed)
    except InvalidInput as error:
        raise AppError(str(error)) from None
    return tuple(dict.fromkeys(listed))


def _called(event: str) -> str:
    if event.startswith(TIMER_PREFIX):
        return f"timer '{event.removeprefix(TIMER_PREFIX)}'"
    return f"'{event}'" if event in HOOKS else f"message '{event}'"


def _methods(of: type) -> list[tuple[str, Callable[..., Any]]]:
    """The methods that take `ctx` first, those of parent classes too."""
    found = inspect.getmembers(of, inspect.isfunction)
    return [(name, one) for name, one in found if not name.startswith("_") and _takes_ctx(one)]


def _takes_ctx(function: Callable[..., Any]) -> bool:
    names = list(inspect.signature(function).parameters)
    return len(names) > 1 and names[1] == CONTEXT_PARAMETER


def _with_fields(type: str, of: type[S]) -> type[S]:
    """The class with its annotated fields as keyword arguments, unless it has that already."""
    if not inspect.isclass(of):
        raise AppError(f"@app.actor is for a class, and this is {of!r}")
    if dataclasses.is_dataclass(of) or hasattr(of, "__struct_fields__"):
        return of
    for name in inspect.get_annotations(of):
        default = getattr(of, name, dataclasses.MISSING)
        can_hold = isinstance(default, list | dict | set | tuple)
        if can_hold and copy.deepcopy(default) is not default:
            # Each actor has its own, with all that lies within it, as everybody expects.
            setattr(of, name, dataclasses.field(default_factory=partial(copy.deepcopy, default)))
    try:
        return dataclasses.dataclass(kw_only=True)(of)
    except (TypeError, ValueError) as error:
        raise AppError(f"actor '{type}': its fields cannot be read: {error}") from None


def _parameter(name: str, needed: bool, hint: Any) -> Parameter:
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    return Parameter(name, needed, text, schema_of(hint))


def _hints(of: type) -> dict[str, Any]:
    """The annotations of a class as types; as they are written, if a name in them is unknown."""
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError):
        return inspect.get_annotations(of)


def _fields(of: type) -> dict[str, bool]:
    """The names of the fields, and whether each must be given."""
    if dataclasses.is_dataclass(of):
        missing = dataclasses.MISSING
        return {
            one.name: one.default is missing and one.default_factory is missing
            for one in dataclasses.fields(of)
        }
    return {one.name: one.required for one in msgspec.structs.fields(of)}
