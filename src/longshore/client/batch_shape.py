"""The function of batched jobs, read: it takes lists, and a job has one item of each."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from longshore.client.limit import KeyGiven
from longshore.client.signature import CONTEXT_PARAMETER, GIVEN, hints_of, is_context, parameters_of
from longshore.errors import AppError
from longshore.executors.host.context import Context

_LISTS = (list, Sequence)
_Empty = inspect.Parameter.empty


class BatchShape(NamedTuple):
    """What the function of batched jobs takes, and what one of its jobs does."""

    items: str
    """The parameter that takes the list."""
    shared: str
    """The parameter of the key, which is given once; empty if there is none."""
    takes_contexts: bool
    may_return_none: bool
    one: Callable[..., object]
    """A function with the parameters and the result of a single job; nobody calls it."""


def batch_shape(kind: str, function: Callable[..., object], key: KeyGiven | None) -> BatchShape:
    """Reads the function; raises `AppError` if it cannot take a batch."""
    what, hints = f"job '{kind}'", hints_of(function)
    kept: list[inspect.Parameter] = []
    items = shared = ""
    takes_contexts = False
    for parameter in parameters_of(what, function):
        hint = hints.get(parameter.name, _Empty)
        if is_context(hint) or _is_list_of_contexts(hint):
            _check_context(what, parameter, hint)
            takes_contexts = True
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            raise AppError(f"{what}: '**{parameter.name}' cannot be of a batch; {_wanted(key)}")
        if parameter.default is not GIVEN and not items:
            items, hint = parameter.name, _item(what, parameter, hint)
        elif parameter.default is not GIVEN:
            shared = _shared(what, parameter, key)
        kept.append(parameter.replace(annotation=Any if isinstance(hint, str) else hint))
    if not items or (isinstance(key, str) and key not in (shared, items)):
        raise AppError(f"{what}: {_missing(items, key)}; {_wanted(key)}")
    returned, may_return_none = _result(what, hints.get("return", _Empty))
    one = _one(inspect.Signature(kept, return_annotation=returned))
    return BatchShape(items, shared, takes_contexts, may_return_none, one)


def _check_context(what: str, parameter: inspect.Parameter, hint: Any) -> None:
    if is_context(hint):
        raise AppError(
            f"{what}: a batch has several jobs, and each has a context: annotate "
            f"{CONTEXT_PARAMETER}: list[longshore.Context]"
        )
    if parameter.name != CONTEXT_PARAMETER:
        raise AppError(
            f"{what}: the parameter '{parameter.name}' is a list of contexts; name it "
            f"{CONTEXT_PARAMETER}, so that it is given them"
        )


def _is_list_of_contexts(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.endswith("Context]") and hint.startswith(("list[", "Sequence["))
    return typing.get_origin(hint) in _LISTS and typing.get_args(hint) == (Context,)


def _item(what: str, parameter: inspect.Parameter, hint: Any) -> Any:
    """The annotation of one item; that of the list must be one of a list, if there is any."""
    if parameter.default is not _Empty:
        raise AppError(f"{what}: '{parameter.name}' takes the items of a batch: no default for it")
    if isinstance(hint, str) or hint in (_Empty, Any, *_LISTS):
        return _Empty
    if typing.get_origin(hint) not in _LISTS:
        raise AppError(
            f"{what}: '{parameter.name}' is {inspect.formatannotation(hint)}, but a batch gives "
            f"it a list; annotate {parameter.name}: list[{inspect.formatannotation(hint)}]"
        )
    return typing.get_args(hint)[0]


def _shared(what: str, parameter: inspect.Parameter, key: KeyGiven | None) -> str:
    if parameter.name != key:
        raise AppError(
            f"{what}: what is '{parameter.name}' of a batch, whose jobs may each have another? "
            f"{_wanted(key)}. Put it into the items, or share it: Batch(…, key='{parameter.name}')"
        )
    return parameter.name


def _missing(items: str, key: KeyGiven | None) -> str:
    return f"its batch has the key '{key}', which is no parameter" if items else "it takes no list"


def _wanted(key: KeyGiven | None) -> str:
    second = f", {key}: str" if isinstance(key, str) else ""
    more = ", and the parameter of its key" if second else ""
    return f"the function of a batch takes one list{more}: async def job(items: list[Item]{second})"


def _result(what: str, hint: Any) -> tuple[Any, bool]:
    """The annotation of one result, and whether the function may return nothing."""
    if hint in (None, types.NoneType):
        return None, True
    if hint is _Empty or hint is Any or isinstance(hint, str):
        return _Empty, True
    if hint in _LISTS:
        return _Empty, False
    if typing.get_origin(hint) not in _LISTS:
        raise AppError(
            f"{what}: it returns {inspect.formatannotation(hint)}, but a batch has a result for "
            "each job: return a list of them, in the order of the jobs, or None"
        )
    return _without_errors(typing.get_args(hint)[0]), False


def _without_errors(hint: Any) -> Any:
    """What a job returns: errors that stand in the list are no results."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    some = typing.get_args(hint) if is_union else (hint,)
    left = [one for one in some if not (isinstance(one, type) and issubclass(one, BaseException))]
    if len(left) == len(some):
        return hint
    return reduce(or_, left) if left else _Empty


def _one(signature: inspect.Signature) -> Callable[..., object]:
    async def one() -> None:
        """Stands for the function as a single job sees it."""

    hints = {p.name: p.annotation for p in signature.parameters.values()}
    hints["return"] = signature.return_annotation
    one.__annotations__ = {name: hint for name, hint in hints.items() if hint is not _Empty}
    one.__signature__ = signature  # type: ignore[attr-defined]
    return one
