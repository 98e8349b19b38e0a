"""The parameters and the result of a job, read from its function's signature.

Arguments travel as a map by parameter name. Longshore checks them twice against the annotations, as
far as msgspec knows these: at the submit, so that a mistake is found where it was made, and at the
run, where they also become the annotated types (a dataclass, an enum, a UUID) again.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import msgspec

from longshore.client.results import to_builtin_arguments
from longshore.errors import AppError, InvalidArguments, InvalidInput, NotSerialisable
from longshore.executors.host.context import Context
from longshore.model.worker import Parameter
from longshore.payload import values
from longshore.payload.annotation_schema import schema_of
from longshore.payload.pydantic_values import from_builtins, is_model
from longshore.payload.references import escaped, references_in
from longshore.payload.result_reference import ResultReference
from longshore.payload.schemas import explain, nearest

CONTEXT_PARAMETER: Final = "ctx"
_UNCHECKED: Final = Any
_PLAIN: Final = frozenset({bool, int, float, str, bytes, list, dict})
"""Types of which none can be had for another, but for numbers."""
_SCALARS: Final = frozenset({bool, int, float, str, bytes})
"""Types whose values are stored as they are, and come back as the same type."""


class _Given:
    """Stands for a resource; used as one, it raises an error that says so."""

    def __repr__(self) -> str:
        return "longshore.GIVEN"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"there is no resource here to take '{name}' from: a worker gives it to the jobs it "
            "runs; in a call of your own pass it by name"
        )


GIVEN: Final[Any] = _Given()
"""The default of a job's parameter for which the worker gives the resource of that name."""


class Signature:
    """The parameters and the result of one job's function.

    The first `skip` parameters are the caller's own business: a method's `self`, say.
    """

    def __init__(
        self, kind: str, function: Callable[..., object], *, what: str = "", skip: int = 0
    ) -> None:
        self.kind = kind
        self.what = what or f"job '{kind}'"
        """What it is called in errors."""
        hints = hints_of(function)
        self.takes_context = False
        self.given: tuple[str, ...] = ()
        kept: list[inspect.Parameter] = []
        for parameter in parameters_of(self.what, function)[skip:]:
            if is_context(hints.get(parameter.name)):
                self._accept_context(parameter)
            elif parameter.default is GIVEN:
                self.given += (parameter.name,)
            else:
                hint = hints.get(parameter.name, parameter.empty)
                kept.append(parameter.replace(annotation=hint))
        self._reserved = {*self.given, *([CONTEXT_PARAMETER] if self.takes_context else [])}
        self._signature = inspect.Signature(kept)
        self._rest = next((p.name for p in kept if p.kind is p.VAR_KEYWORD), None)
        self._named = {p.name: p for p in kept if p.name != self._rest}
        self._places = tuple(p.name for p in kept if p.kind is p.POSITIONAL_OR_KEYWORD)
        self._needed = {name for name, p in self._named.items() if p.default is p.empty}
        self._types = {p.name: _checkable(hints.get(p.name)) for p in kept}
        self._scalars = {name: of for name, of in self._types.items() if _is_scalar(of)}
        self._shown = {p.name: _shown(hints.get(p.name)) for p in kept}
        self.returns = _checkable(hints.get("return"))

    def _accept_context(self, parameter: inspect.Parameter) -> None:
        if parameter.name != CONTEXT_PARAMETER:
            raise AppError(
                f"{self.what}: the parameter '{parameter.name}' is a longshore.Context; "
                f"name it {CONTEXT_PARAMETER}, so that it is given one"
            )
        self.takes_context = True

    def parameters(self) -> tuple[Parameter, ...] | None:
        """What a worker advertises; None if the job takes any names."""
        if self._rest is not None:
            return None
        return tuple(
            Parameter(name, name in self._needed, self._shown[name], schema_of(self._types[name]))
            for name in self._named
        )

    # where it is submitted

    def pack(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """The arguments of a call as they are stored; `InvalidArguments` if they do not fit."""
        given = self._bind(args, kwargs)
        data = values.pack_scalars(given) if self._has_scalars(given) else None
        if data is None:
            data = values.pack_arguments(given, self.kind)
            self._convert_all(values.unpack(data))
        return data

    def _has_scalars(self, given: Mapping[str, object]) -> bool:
        """Whether all arguments are scalars of their very types, which need no conversion."""
        scalars = self._scalars
        for name, value in given.items():  # noqa: SIM110 (a generator takes longer)
            if scalars.get(name) is not type(value):
                return False
        return True

    def pack_with_results(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[bytes, list[ResultReference]]:
        """The arguments of a call in which results of other jobs stand, and these results.

        What such a result will be is not known: only the other arguments are checked.
        """
        return self._packed_with_results(self._bind(args, kwargs))

    def _packed_with_results(
        self, given: Mapping[str, object]
    ) -> tuple[bytes, list[ResultReference]]:
        whole, found = to_builtin_arguments(given, self.kind)
        written = {name: escaped(value) for name, value in whole.items()}
        known = {name for name, value in written.items() if not any(references_in(value))}
        self._convert_all({name: whole[name] for name in known})
        for name, value in given.items():
            if isinstance(value, ResultReference):
                self._check_returned(name, value)
        return values.pack_arguments(written, self.kind), found

    def _check_returned(self, name: str, result: ResultReference) -> None:
        """Raises if a result can never be what the parameter wants."""
        wanted = self._types.get(name, _UNCHECKED)
        if not _may_be(wanted, result.returns):
            raise InvalidArguments(
                f"{self.what}: argument '{name}' must be {_shown(wanted)}, but "
                f"'{result.reference.job}' returns {_shown(result.returns)}"
            )

    # where it is mapped

    def pack_pattern(
        self, constants: Mapping[str, object], parameter: str | None
    ) -> tuple[str, bytes, list[ResultReference]]:
        """The parameter that an element goes to, and the arguments that all elements share."""
        own = self._element_parameter(constants) if parameter is None else parameter
        if own in constants:
            raise InvalidArguments(
                f"{self.what}: '{own}' gets the elements of the map; do not give it too"
            )
        given = self._bind((), {**constants, own: None})
        shared = {name: value for name, value in given.items() if name != own}
        try:
            packed = values.pack_arguments(shared, self.kind)
        except NotSerialisable:  # as results of other jobs are; anything else is refused again
            return own, *self._packed_with_results(shared)
        self._convert_all(values.unpack(packed))
        return own, packed, []

    def _element_parameter(self, constants: Mapping[str, object]) -> str:
        left = next((name for name in self._named if name not in constants), None)
        if left is None:
            raise InvalidArguments(
                f"{self.what}: no parameter is left for the elements; {self._usage()}"
            )
        return left

    def check_element(self, parameter: str, value: object) -> None:
        """Raises `InvalidArguments` if an element cannot be the argument that it is given as."""
        self._convert_all({parameter: value})

    def check_elements(self, parameter: str, over: ResultReference) -> None:
        """Raises `InvalidArguments` if a result can never be a list of such arguments."""
        wanted = self._types.get(parameter, _UNCHECKED)
        whole: Any = list if wanted is _UNCHECKED else types.GenericAlias(list, (wanted,))
        if not _may_be(whole, over.returns):
            raise InvalidArguments(
                f"{self.what}: a map of it goes over {_shown(whole)}, but "
                f"'{over.reference.job}' returns {_shown(over.returns)}"
            )

    def _bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        # `inspect` explains errors well, but is slow where there is none.
        given = dict(zip(self._places, args, strict=False))
        if not kwargs and len(args) == len(given) == len(self._named):
            return given
        given.update(kwargs)
        fits = len(given) == len(args) + len(kwargs) and given.keys() <= self._named.keys()
        if fits and self._needed <= given.keys():
            return given
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(
                f"{self.what}: {self._unexpected(kwargs) or error}; {self._usage()}"
            ) from None
        if self._rest is not None:
            bound.update(bound.pop(self._rest, {}))
        for name in self._reserved & bound.keys():
            raise InvalidArguments(f"{self.what}: '{name}' is given by the worker; leave it out")
        return bound

    def unpack_result(self, data: bytes | None) -> Any:
        """A stored result as the type that the function's annotation names."""
        value = None if data is None else values.unpack(data)
        try:
            return _convert(value, self.returns)
        except msgspec.ValidationError as error:
            raise InvalidInput(
                f"{self.what} succeeded, but its result is not what its annotation says: "
                f"{explain(error)}; msgspec.msgpack.decode(handle.job().result) gives it as stored"
            ) from None

    # where it is run

    def bind(self, args: bytes) -> dict[str, object]:
        """The keyword arguments for the function, each in its annotated type."""
        try:
            given = values.unpack(args)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArguments(f"{self.what}: its arguments are not msgpack: {error}") from None
        if not isinstance(given, dict):
            raise InvalidArguments(
                f"{self.what}: its arguments are a {type(given).__name__}, not a map by name"
            )
        if given.keys() == self._named.keys() and self._has_scalars(given):
            return given
        self._check_names(given)
        return self._convert_all(given)

    def _check_names(self, given: Mapping[str, object]) -> None:
        for name in self._named:
            if name in self._needed and name not in given:
                raise InvalidArguments(
                    f"{self.what}: missing a required argument: '{name}'; {self._usage()}"
                )
        for name in given:
            is_known = name in self._named or (self._rest is not None and isinstance(name, str))
            if not is_known or name in self._reserved:
                raise InvalidArguments(
                    f"{self.what}: got an unexpected argument '{name}'; {self._usage()}"
                )

    def _convert_all(self, given: Mapping[str, object]) -> dict[str, object]:
        rest = _UNCHECKED if self._rest is None else self._types[self._rest]
        return {
            name: self._convert_one(name, value, self._types[name] if name in self._named else rest)
            for name, value in given.items()
        }

    def _convert_one(self, name: str, value: object, wanted: Any) -> object:
        try:
            return _convert(value, wanted)
        except msgspec.ValidationError as error:
            raise InvalidArguments(f"{self.what}: argument '{name}' {explain(error)}") from None

    def _unexpected(self, kwargs: Mapping[str, object]) -> str:
        """The error for the first unknown name, with the parameter it was probably meant for.

        `inspect` would complain of the missing parameter instead.
        """
        unknown = next((name for name in kwargs if name not in self._named), None)
        if unknown is None or self._rest is not None:
            return ""
        near = nearest(unknown, self._named.keys() - kwargs.keys())
        return f"got an unexpected keyword argument '{unknown}'{near}"

    def _usage(self) -> str:
        return f"it takes {self._signature}{self._forgotten_context()}"

    def _forgotten_context(self) -> str:
        parameter = self._named.get(CONTEXT_PARAMETER)
        if parameter is None or parameter.annotation is not inspect.Parameter.empty:
            return ""
        return f". To be given the job's context, annotate {CONTEXT_PARAMETER}: longshore.Context"


def parameters_of(what: str, function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters of a function, if each can be given by its name."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise AppError(f"{what}: its function has no signature to read") from None
    for parameter in found:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise AppError(
                f"{what}: '*{parameter.name}' cannot be given by name; take a list instead"
            )
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise AppError(
                f"{what}: '{parameter.name}' is positional-only, but a job's arguments are "
                "given by name; leave the '/' out"
            )
    return found


def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """The annotations by name, those that can be resolved; text where they cannot."""
    target = inspect.unwrap(function)
    if not hasattr(target, "__annotations__"):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # an annotation may be any expression, and so raise anything
        return _hints_one_by_one(target)


def _hints_one_by_one(target: Callable[..., object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, annotation in dict(getattr(target, "__annotations__", {})).items():
        alone = type("alone", (), {"__annotations__": {name: annotation}})
        try:
            found |= typing.get_type_hints(
                alone, globalns=getattr(target, "__globals__", {}), include_extras=True
            )
        except Exception:  # as above
            found[name] = annotation
    return found


def is_context(annotation: Any) -> bool:
    """Whether a parameter is for the job's context, even if its module could not be resolved."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == Context.__name__
    return annotation is Context


def _checkable(annotation: Any) -> Any:
    """The annotation if msgspec knows all of it, or else `Any`."""
    if annotation is None or isinstance(annotation, str):
        return _UNCHECKED
    try:
        msgspec.json.schema(annotation, schema_hook=_known)
        msgspec.msgpack.Decoder(annotation, dec_hook=from_builtins)
    except Exception:  # whatever it is, it cannot be checked
        return _UNCHECKED
    return annotation


def _is_scalar(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation in _SCALARS


def _known(kind: type) -> dict[str, Any]:
    if not is_model(kind):
        raise TypeError(f"{kind!r} is no type that can be checked")
    return {"type": "object"}


def _shown(annotation: Any) -> str:
    if annotation is None:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _may_be(wanted: Any, returned: Any) -> bool:
    """Whether a value of one annotated type may be one of another."""
    plain = [typing.get_origin(one) or one for one in (wanted, returned)]
    if not all(isinstance(one, type) and one in _PLAIN for one in plain):
        return True
    if plain[0] is not plain[1]:
        return {*plain} == {int, float}
    inner = [typing.get_args(one) for one in (wanted, returned)]
    return plain[0] is not list or not all(inner) or _may_be(inner[0][0], inner[1][0])


def _convert(value: object, wanted: Any) -> Any:
    if wanted is _UNCHECKED:
        return value
    return msgspec.convert(value, wanted, dec_hook=from_builtins)
