"""`app.command` and `app.container`: programs that an app declares, as kinds of job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.client.handler import FunctionHandler
from longshore.client.kind import Terms
from longshore.client.rules import RulesGiven, rules_of
from longshore.core.programs import check_program, read_name, read_program
from longshore.core.templates import filled, filled_text, names_in, placeholders
from longshore.errors import AppError, InvalidInput
from longshore.model.program import AnyProgram, Command, Container, Outcome
from longshore.model.worker import KindTerms, Pool
from longshore.payload.values import unpack

Argument = str | int | float | bool | list | dict | None  # type: ignore[type-arg]
"""What can stand for a placeholder: lists and maps as JSON, None as nothing."""

_POOLS: Final[dict[type[AnyProgram], Pool]] = {
    Command: Pool.COMMAND,
    Container: Pool.CONTAINER,
}


class ProgramHandler(FunctionHandler):
    """Tells workers what to run for the jobs of one kind (see `ports.ProgramHandler`).

    Its function answers the program with the arguments filled in, and runs nothing.
    """

    def __init__(
        self,
        kind: str,
        template: AnyProgram,
        defaults: Mapping[str, object],
        terms: KindTerms | None = None,
    ) -> None:
        self.template = template
        self._defaults = defaults
        function = _filling(kind, template, defaults)
        super().__init__(kind, function, None, terms)
        needs_files = bool(template.inputs or template.outputs or template.checkpoint)
        self.info = structs.replace(
            self.info,
            pool=_POOLS[type(template)],
            files=needs_files,
            inputs=tuple(_known(read_name(one), defaults) for one in template.inputs),
            outputs=tuple(_known(one.fileset, defaults) for one in template.outputs),
            lost_free=any(rule.outcome is Outcome.WORKER_LOST for rule in template.rules),
        )
        self.fill: Callable[..., AnyProgram] = function

    def files_from(self, args: bytes) -> tuple[str, ...]:
        """The keys of the jobs of a group whose files are inputs of a job with these arguments."""
        if not any(one.maker for one in self.template.inputs):
            return ()
        whole = filled(self.template, {**self._defaults, **unpack(args)})
        return tuple(one.maker for one in whole.inputs if one.maker)

    def program(self, args: bytes) -> AnyProgram:
        """What to run for a job with these arguments."""
        return self.fill(**self.bind(args))


def declared(
    kind: str, of: type[AnyProgram], fields: Mapping[str, object], on: RulesGiven
) -> AnyProgram:
    """The template that an app declares; raises `AppError` that names the kind and what is wrong.

    Fields that are None are left out.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        template = read_program(f"{of.__name__.lower()} '{kind}'", of, given)
        template = structs.replace(template, rules=rules_of(on))
        check_program(f"{of.__name__.lower()} '{kind}'", template, template=True)
        placeholders(template)
    except InvalidInput as error:
        raise AppError(_about(kind, of, str(error))) from None
    return template


def _known(name: str, defaults: Mapping[str, object]) -> str:
    """The name of a fileset with the defaults filled in; other placeholders stay."""
    kept = {name: f"{{{name}}}" for name in names_in(name)}
    return filled_text(name, {**kept, **defaults})


def _about(kind: str, of: type[AnyProgram], words: str) -> str:
    begin = f"{of.__name__.lower()} '{kind}'"
    return words if words.startswith(begin) else f"{begin}: {words}"


def limits_of(**given: object) -> dict[str, object] | None:
    """The limits that were given; None if there are none."""
    return {name: value for name, value in given.items() if value is not None} or None


def handler_of(
    kind: str, template: AnyProgram, defaults: Mapping[str, object] | None, terms: Terms
) -> ProgramHandler:
    """The handler of a declared program; raises `AppError` if a default is for nothing."""
    terms.submission(UUID(int=0), kind, b"")
    return ProgramHandler(kind, template, defaults or {}, terms.advertised())


def _filling(
    kind: str, template: AnyProgram, defaults: Mapping[str, object]
) -> Callable[..., AnyProgram]:
    """A function whose parameters are the placeholders of a template."""
    names = placeholders(template)
    for name in defaults:
        if name not in names:
            there = ", ".join(names) or "none"
            raise AppError(
                f"job '{kind}': defaults has '{name}', but no {{{name}}} stands in it; its "
                f"placeholders: {there}"
            )

    def program(**arguments: object) -> AnyProgram:
        whole = filled(template, {**defaults, **arguments})
        check_program(f"job '{kind}'", whole)
        return whole

    program.__name__ = program.__qualname__ = kind
    program.__doc__ = f"The program of a '{kind}' job with these arguments."
    program.__annotations__ = dict.fromkeys(names, Argument)
    setattr(program, "__signature__", _signature(names, defaults))  # noqa: B010
    return program


def _signature(names: tuple[str, ...], defaults: Mapping[str, object]) -> inspect.Signature:
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return inspect.Signature(
        [inspect.Parameter(name, kind, default=defaults.get(name, empty)) for name in names]
    )
