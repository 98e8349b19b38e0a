"""How an app declares programs: `app.command` and `app.container`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack

from longshore.client.handler import FunctionHandler
from longshore.client.kind import AnyKind, Terms
from longshore.client.program import declared, handler_of, limits_of
from longshore.client.rules import RulesGiven
from longshore.errors import AppError
from longshore.model.program import AnyProgram, Command, Container, Input, Output

InputsGiven = Sequence[Input | str | Mapping[str, Any]]
"""Inputs: `Input(…)`, maps with its fields, or names: "photos", or "photos@3" for a version."""
OutputsGiven = Sequence[Output | str | Mapping[str, Any]]
"""Outputs: `Output(…)`, maps with its fields, or names."""

_ONLY_AT_A_SUBMIT: Final = ("id", "callback")


class DeclaredOptions(TypedDict, total=False):
    """The options of a declared program, beside what it runs."""

    retries: int
    backoff_s: float
    backoff_factor: float
    max_backoff_s: float
    jitter: float
    timeout_s: float | None
    expires_s: float | None
    queue: str
    priority: int
    target: str
    delay_s: float | None
    run_at: datetime | None
    unique_key: str | None
    labels: Sequence[str]


class DeclaresPrograms(ABC):
    """The part of an app that declares commands and containers."""

    @abstractmethod
    def _add_kind(
        self, handler: FunctionHandler, function: Callable[..., Any], terms: Terms
    ) -> AnyKind:
        """Adds a kind of job to the app."""

    def command(
        self,
        kind: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        folder: str = "",
        inputs: InputsGiven = (),
        outputs: OutputsGiven = (),
        memory: str | int | None = None,
        cpu_s: float | None = None,
        open_files: int | None = None,
        processes: int | None = None,
        secrets: Sequence[str] = (),
        checkpoint: Sequence[str] = (),
        on: RulesGiven = (),
        defaults: Mapping[str, object] | None = None,
        **options: Unpack[DeclaredOptions],
    ) -> AnyKind:
        """Declares a command: `app.command("resize", ["convert", "{source}", "out.png"])`.

        `{name}` in a text stands for an argument of the job, which is required unless `defaults`
        has it. A job takes its arguments by name: `resize.submit(source="a.png")`. See
        docs/containers.md.
        """
        fields = {
            "argv": argv,
            "env": env,
            "stdin": stdin,
            "folder": folder,
            "inputs": inputs,
            "outputs": outputs,
            "limits": limits_of(
                memory=memory, cpu_s=cpu_s, open_files=open_files, processes=processes
            ),
            "secrets": secrets,
            "checkpoint": checkpoint,
        }
        return self._declare_program(kind, Command, fields, on, defaults, options)

    def container(
        self,
        kind: str,
        *,
        image: str,
        command: Sequence[str] = (),
        entrypoint: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        user: str = "",
        folder: str = "",
        network: bool = False,
        inputs: InputsGiven = (),
        outputs: OutputsGiven = (),
        memory: str | int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        secrets: Sequence[str] = (),
        checkpoint: Sequence[str] = (),
        on: RulesGiven = (),
        defaults: Mapping[str, object] | None = None,
        **options: Unpack[DeclaredOptions],
    ) -> AnyKind:
        """Declares a container: `app.container("train", image="trainer:1", command=["train"])`.

        Placeholders and arguments are as with `command`.
        """
        fields = {
            "image": image,
            "command": command,
            "entrypoint": entrypoint,
            "env": env,
            "user": user,
            "folder": folder,
            "network": network,
            "inputs": inputs,
            "outputs": outputs,
            "limits": limits_of(memory=memory, cpus=cpus, pids=pids),
            "secrets": secrets,
            "checkpoint": checkpoint,
        }
        return self._declare_program(kind, Container, fields, on, defaults, options)

    def _declare_program(
        self,
        kind: str,
        of: type[AnyProgram],
        fields: Mapping[str, object],
        on: RulesGiven,
        defaults: Mapping[str, object] | None,
        options: DeclaredOptions,
    ) -> AnyKind:
        for name in _ONLY_AT_A_SUBMIT:
            if name in options:
                raise AppError(f"'{kind}': {name} is for a single submit: .options({name}=…)")
        if "batch" in options:
            raise AppError(
                f"'{kind}': batch is for functions, @app.job(batch=…); a program is started for "
                "each job"
            )
        terms = Terms().but(**options)
        handler = handler_of(kind, declared(kind, of, fields, on), defaults, terms)
        return self._add_kind(handler, handler.fill, terms)
