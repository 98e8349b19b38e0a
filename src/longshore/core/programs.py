"""Programs as users describe them: read from maps, and checked.

A job of a free kind has the fields of its program as arguments. Files and bodies of requests have
the same ones. Some may be written shorter: a rule or a size as text, an input by its name alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import Struct, structs

from longshore.core.checkpoints import MAX_PATTERNS
from longshore.core.limits import check_length, check_name
from longshore.core.outcomes import MAX_RULES, check_rule, parse_rule, parse_size
from longshore.core.publishing import check_fileset
from longshore.core.templates import as_text
from longshore.errors import InvalidInput
from longshore.model.program import (
    COMMAND_KIND,
    CONTAINER_KIND,
    AnyProgram,
    Command,
    Container,
    Input,
    Limits,
    Outcome,
    Output,
)
from longshore.model.worker import Parameter

FREE_TYPES: Final[dict[str, type[AnyProgram]]] = {
    COMMAND_KIND: Command,
    CONTAINER_KIND: Container,
}
OWN_PREFIX: Final = "LONGSHORE_"
"""No variable of a user may begin with this."""
MAX_ITEMS: Final = 10_000
"""How many words a command line may have, and how many variables an environment."""
MAX_FILESETS: Final = 100
MAX_SECRETS: Final = 100
MAX_PATH_CHARS: Final = 4_000
_MODULE: Final = f"{Command.__module__}."
_SHORT: Final = {"memory": "memory_bytes"}


def described(kind: str, given: object) -> AnyProgram:
    """The program that the arguments of a job of a free kind describe; raises `InvalidInput`."""
    what = f"job '{kind}'"
    program = read_program(what, FREE_TYPES[kind], given)
    check_program(what, program)
    if any(rule.outcome is Outcome.WORKER_LOST for rule in program.rules):
        raise InvalidInput(
            f"{what}: a rule about {Outcome.WORKER_LOST} is for a kind that an app declares; when "
            "a worker is lost, nobody reads the rules of a single job. Leave it out: the loss of a "
            "worker uses up no retry"
        )
    return program


def read_program(what: str, of: type[AnyProgram], given: object) -> AnyProgram:
    """The program with these fields. Errors name `what` it is, and the field."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what}: it is described by names and values, like argv: [echo, hi]")
    known = of.__struct_fields__
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidInput(f"{what}: it has no '{name!s:.100}'; {_nearest(name, known)}")
        change = _LONG.get(name)
        fields[name] = value if change is None else change(what, value)
    try:
        return msgspec.convert(fields, of)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{what}: {_told(error)}") from None


def _told(error: msgspec.ValidationError) -> str:
    words, _, where = str(error).partition(" - at `$.")
    field = where.rstrip("`")
    return f"{field}: {words}" if field else words


def _nearest(name: object, known: tuple[str, ...]) -> str:
    near = get_close_matches(str(name), known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"


def _texts(what: str, value: object) -> object:
    """Other values among texts as texts: a file has `[sleep, 5]`, results of jobs are anything."""
    if isinstance(value, str):
        raise InvalidInput(
            f"{what}: {value!r:.100} is one text; give a list of words, like ['sleep', '5']: "
            "nothing splits words, and there is no shell unless you name one"
        )
    return [_text(one) for one in value] if isinstance(value, list | tuple) else value


def _text(value: object) -> object:
    return value if isinstance(value, bytes) else as_text(value)


def _variables(what: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {name: _text(one) for name, one in value.items()}


def _inputs(what: str, value: object) -> object:
    return _filesets(f"{what}: an input", Input, value)


def _outputs(what: str, value: object) -> object:
    return _filesets(f"{what}: an output", Output, value)


def _filesets(what: str, of: type[Input | Output], value: object) -> object:
    """Names of filesets as what they stand for: NAME, or NAME@VERSION for an input."""
    filesets = fileset_fields(value)
    if not isinstance(filesets, list):
        return filesets
    known = of.__struct_encode_fields__
    for name in (name for one in filesets if isinstance(one, Mapping) for name in one):
        if name not in known:
            raise InvalidInput(f"{what} has no '{name!s:.100}'; {_nearest(name, known)}")
    return filesets


def fileset_fields(value: Any) -> Any:
    """Inputs or outputs with the fields that each has, as far as they are a list or a name."""
    if isinstance(value, str | Mapping):
        value = [value]
    return [_fileset(one) for one in value] if isinstance(value, list | tuple) else value


def read_name(wanted: Input) -> str:
    """What an input reads: NAME or NAME@VERSION; empty if another job of the group makes it."""
    if wanted.maker:
        return ""
    return wanted.fileset if wanted.version is None else f"{wanted.fileset}@{wanted.version}"


def _fileset(value: object) -> object:
    if isinstance(value, Struct):
        return msgspec.to_builtins(value)
    if not isinstance(value, str):
        return value
    name, _, version = value.partition("@")
    return {"fileset": name, "version": int(version)} if version.isdigit() else {"fileset": value}


def _limits(what: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    known = tuple(Limits.__struct_fields__)
    fields = {_SHORT.get(name, name): one for name, one in value.items()}
    for name in fields:
        if name not in known:
            raise InvalidInput(f"{what}: limits have no '{name!s:.100}'; {_nearest(name, known)}")
    memory = fields.get("memory_bytes")
    if isinstance(memory, str):
        fields["memory_bytes"] = parse_size(memory)
    return fields


def _patterns(what: str, value: object) -> object:
    return [value] if isinstance(value, str) else value


def _rules(what: str, value: object) -> object:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return [_rule(one) for one in value]


def _rule(value: object) -> object:
    rule = parse_rule(value) if isinstance(value, str) else value
    return msgspec.to_builtins(rule) if isinstance(rule, Struct) else rule


_LONG: Final[dict[str, Callable[[str, object], object]]] = {
    "argv": _texts,
    "command": _texts,
    "entrypoint": _texts,
    "env": _variables,
    "inputs": _inputs,
    "outputs": _outputs,
    "limits": _limits,
    "rules": _rules,
    "checkpoint": _patterns,
}


def parameters_of(of: type[AnyProgram]) -> tuple[Parameter, ...]:
    """What a worker advertises of a free kind."""
    hints = get_type_hints(of)
    return tuple(
        Parameter(field.name, field.required, _shown(hints[field.name]))
        for field in structs.fields(of)
    )


def _shown(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type)
        else str(hint).replace("longshore.model.program.", "")
    )


# what may be in them


def check_program(what: str, program: AnyProgram, *, template: bool = False) -> None:
    """Raises `InvalidInput` naming what a program may not have.

    Of a `template`, texts with placeholders are checked when they are filled.
    """
    check = _Check(what, template)
    match program:
        case Command():
            check.words("argv", program.argv, least=1)
            check.below("folder", program.folder)
        case Container():
            check.words("image", (program.image,), least=1)
            check.words("command", program.command)
            check.words("entrypoint", program.entrypoint)
    check.variables(program.env)
    check.count("inputs", len(program.inputs), MAX_FILESETS)
    check.count("outputs", len(program.outputs), MAX_FILESETS)
    named: tuple[Input | Output, ...] = (*program.inputs, *program.outputs)
    for one in named:
        if isinstance(one, Input) and one.maker:
            check.maker(one)
        else:
            check.fileset(one.fileset, one.path, one.patterns)
    check.distinct([one.fileset for one in program.outputs])
    check.limits(program.limits)
    check.count("secrets", len(program.secrets), MAX_SECRETS)
    check.count("rules", len(program.rules), MAX_RULES)
    check.count("patterns of a checkpoint", len(program.checkpoint), MAX_PATTERNS)
    for pattern in program.checkpoint:
        check.below("checkpoint", pattern)
    for rule in program.rules:
        check_rule(rule)


class _Check:
    def __init__(self, what: str, template: bool) -> None:
        self._what = what
        self._template = template

    def words(self, name: str, words: tuple[str, ...], least: int = 0) -> None:
        """A command line."""
        self.count(name, len(words), MAX_ITEMS)
        if len(words) < least or (least and not words[0]):
            raise InvalidInput(f"{self._what}: {name} is empty; name the program to run")
        for word in words:
            self._no_zero(name, word)

    def variables(self, env: Mapping[str, str]) -> None:
        """An environment."""
        self.count("env", len(env), MAX_ITEMS)
        for name, value in env.items():
            if not name or "=" in name or "\0" in name:
                raise InvalidInput(f"{self._what}: env has the name {name!r:.100}, which cannot be")
            if name.startswith(OWN_PREFIX):
                raise InvalidInput(
                    f"{self._what}: env sets {name:.100}; names that begin with {OWN_PREFIX} are "
                    "Longshore's own"
                )
            self._no_zero("env", value)

    def fileset(self, name: str, path: str, patterns: tuple[str, ...]) -> None:
        """An input or an output."""
        if not self._is_open(name):
            check_name(f"{self._what}: the fileset", name)
            try:
                check_fileset(name)
            except InvalidInput as error:
                raise InvalidInput(f"{self._what}: {error}") from None
        self.below("path", path)
        if not patterns:
            raise InvalidInput(f"{self._what}: fileset '{name}' has no patterns; leave them out")
        for pattern in patterns:
            self.below("pattern", pattern)

    def maker(self, wanted: Input) -> None:
        """An input that another job of the group makes."""
        if wanted.version is not None:
            raise InvalidInput(
                f"{self._what}: an input is from job '{wanted.maker}' and version "
                f"{wanted.version}; a job makes a version of its own, so leave one of them out"
            )
        check_length(f"{self._what}: from", wanted.maker, MAX_PATH_CHARS)
        self.fileset(wanted.fileset or "output", wanted.path, wanted.patterns)

    def distinct(self, outputs: Sequence[str]) -> None:
        """Outputs, each of a fileset of its own: a job makes one version of a fileset."""
        for name, count in Counter(outputs).items():
            if count > 1:
                raise InvalidInput(
                    f"{self._what}: {count} outputs are of the fileset '{name}'; make one of them, "
                    "with all patterns"
                )

    def below(self, name: str, path: str) -> None:
        """A path that stays below the program's own folder."""
        check_length(f"{self._what}: {name}", path, MAX_PATH_CHARS)
        self._no_zero(name, path)
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidInput(
                f"{self._what}: {name} {path!r:.100} leads out of the program's own folder; give "
                "a path below it, like data/in"
            )

    def limits(self, limits: Limits) -> None:
        """Limits, each more than nothing."""
        for name, value in structs.asdict(limits).items():
            if value is not None and not value > 0:
                raise InvalidInput(f"{self._what}: limit {name} is {value}; it must be more than 0")

    def count(self, name: str, count: int, most: int) -> None:
        """How many there are of something."""
        if count > most:
            raise InvalidInput(f"{self._what}: {count:,} {name} are more than the {most:,} allowed")

    def _no_zero(self, name: str, text: str) -> None:
        if "\0" in text:
            raise InvalidInput(
                f"{self._what}: {name} has a zero byte in it, which no program takes"
            )

    def _is_open(self, text: str) -> bool:
        return self._template and "{" in text
