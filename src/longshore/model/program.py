"""Programs as jobs: a command or a container, its files, and every way in which it can end.

A `Program` is what a worker runs. One that an app declares is a template: `{name}` in its texts
stands for an argument of the job. One that a submitter describes itself is the arguments of the
job, of kind `COMMAND_KIND` or `CONTAINER_KIND`; only workers that allow it (`exec`) serve those.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from longshore.model.usage import Usage

COMMAND_KIND: Final = "longshore.command"
CONTAINER_KIND: Final = "longshore.container"
FREE_KINDS: Final = frozenset({COMMAND_KIND, CONTAINER_KIND})
"""The kinds of programs that submitters describe. Their workers run whatever they are told."""

CHECKPOINT_CODE: Final = 85
"""A program that exits with this code asks to go on later, with the files that it saved."""

JOB_VARIABLE: Final = "LONGSHORE_JOB"
"""The id of its job, in the environment of a program."""

PROGRAM_VARIABLES: Final = tuple(
    f"LONGSHORE_{word}"
    for word in ("JOB", "ATTEMPT", "RESULT", "PROGRESS", "CHECKPOINT", "SECRETS", "WORKER_PROCESS")
)
"""What programs find in their environment, beside `LONGSHORE_TOKEN`. A `longshore` command that a
job runs must not take them for settings."""

DEVICE_PREFIX: Final = "LONGSHORE_DEVICE_"
"""So begin the variables that tell a program the numbers of its devices."""

GPU: Final = "gpu"
"""The device of which programs know without Longshore: libraries look at `GPU_VARIABLE`."""
GPU_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"


class PublishOn(StrEnum):
    """After which end of a job its files are published."""

    SUCCESS = "success"
    FAILURE = "failure"
    ALWAYS = "always"


class Input(Struct, frozen=True, omit_defaults=True, rename={"maker": "from"}):
    """Files that are there before a program begins: those of a fileset that match a pattern.

    Without a `version` the newest one is taken, the same for all attempts of a round. They lie
    below `path`, a folder in the program's own folder. With a `maker` (`from` in files), the key of
    a job of the same group, it is the version that this job has made; then the fileset may be left
    out, if that job makes only one.
    """

    fileset: str = ""
    version: int | None = None
    patterns: tuple[str, ...] = ("**",)
    path: str = ""
    maker: str = ""

    @property
    def called(self) -> str:
        """What it is, in steps and errors."""
        if not self.maker:
            return self.fileset
        return f"{self.fileset} of {self.maker}" if self.fileset else f"of {self.maker}"


class Output(Struct, frozen=True, omit_defaults=True):
    """Files that are taken when a program has ended, as a new version of a fileset.

    Each pattern must match something. `path` is where they lie, a folder in the program's own.
    """

    fileset: str
    patterns: tuple[str, ...] = ("**",)
    path: str = ""
    on: PublishOn = PublishOn.SUCCESS


class Limits(Struct, frozen=True, omit_defaults=True):
    """What a program may use at most; None is no limit of ours.

    `cpus` and `pids` are for containers. `cpu_s`, `open_files` and `processes` are for commands;
    `processes` counts all of the user that runs them.
    """

    memory_bytes: int | None = None
    cpu_s: float | None = None
    open_files: int | None = None
    processes: int | None = None
    cpus: float | None = None
    pids: int | None = None


class Action(StrEnum):
    """What a rule does about an end."""

    RETRY = "retry"
    """It counts as a failure, and is tried again at most `most` times."""
    RETRY_FREE = "retry_free"
    """It is tried again, and costs no attempt."""
    FAIL = "fail"
    """It fails, whatever attempts are left."""
    SKIP = "skip"
    """The job is skipped."""


class Outcome(StrEnum):
    """How a program ended. `core.outcomes` says what each means."""

    EXIT = "exit"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "oom"
    TIMED_OUT = "timed_out"
    NOT_STARTED = "not_started"
    IMAGE_MISSING = "image_missing"
    PULL_FAILED = "pull_failed"
    INPUT_MISSING = "input_missing"
    OUTPUT_MISSING = "output_missing"
    OUTPUT_REFUSED = "output_refused"
    TRANSFER_FAILED = "transfer_failed"
    DISK_FULL = "disk_full"
    ENGINE_GONE = "engine_gone"
    WORKER_LOST = "lost"


class Rule(Struct, frozen=True, omit_defaults=True):
    """What to do about one way to end. Of several rules, the first that fits counts."""

    outcome: Outcome
    codes: tuple[int, ...] = ()
    """Of `exit` and `signal`: only these numbers; all, if there are none."""
    action: Action = Action.RETRY
    most: int = 1
    """How many retries."""
    memory_factor: float = 1.0
    """With each failure, the next attempt may use so many times as much memory."""
    memory_most_bytes: int | None = None


class Program(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What commands and containers have in common."""

    env: dict[str, str] = {}
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    limits: Limits = Limits()
    rules: tuple[Rule, ...] = ()
    secrets: tuple[str, ...] = ()
    """The names of secrets that it gets as files, in the folder `LONGSHORE_SECRETS`."""
    checkpoint: tuple[str, ...] = ()
    """Which files the next attempt gets back: as they were when the program asked for it."""


class Command(Program, frozen=True, omit_defaults=True, kw_only=True, tag_field="run"):
    """A program of the worker's machine. `folder` is where it runs, below its own folder."""

    argv: tuple[str, ...]
    stdin: str = ""
    folder: str = ""


class Container(Program, frozen=True, omit_defaults=True, kw_only=True, tag_field="run"):
    """A program in a container. An empty `command` is that of the image."""

    image: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    user: str = ""
    folder: str = ""
    network: bool = False
    """Whether it can reach the network of the engine."""


AnyProgram = Command | Container


class ProgramEnd(Struct, frozen=True, omit_defaults=True):
    """How a program ended: `number` is the exit code or the signal, `words` say the rest."""

    outcome: Outcome
    number: int | None = None
    words: str = ""
    """What happened, as the rest of a sentence: "exited with code 3"."""
    usage: Usage | None = None

    @property
    def is_success(self) -> bool:
        """Whether it ended as programs do that found nothing wrong."""
        return self.outcome is Outcome.EXIT and self.number == 0
