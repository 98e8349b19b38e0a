"""What an error of a container engine means for the attempt: one of the outcomes of programs.

Engines say most of it in words only. What is the fault of the job (a command that is not in the
image, a user that it does not know) ends it; everything else is the machinery's, tried again at no
cost.
"""

from __future__ import annotations

from typing import Final

from longshore.executors.text import bounded
from longshore.model.program import Outcome, ProgramEnd

MOST_WORDS_BYTES: Final = 1_000

_DISK_FULL: Final = ("no space left on device", "disk quota exceeded")
_PASSING: Final = (
    "resource temporarily unavailable",
    "cannot allocate memory",
    "too many open files",
    "device or resource busy",
    "deadline exceeded",
    "timeout",
    "connection refused",
)
_JOBS_FAULT: Final = (
    "oci runtime",
    "executable file not found",
    "exec format error",
    "unable to find user",
    "unable to find group",
    "no matching entries in passwd file",
)
_NO_IMAGE: Final = (
    "manifest unknown",
    "manifest for",
    "not found",
    "does not exist",
    "repository name not known",
    "access denied",
    "access forbidden",
    "unauthorized",
    "no basic auth credentials",
    "authentication required",
    "no matching manifest",
    "invalid reference format",
)


def gone(error: object) -> ProgramEnd:
    """The engine does not answer, or answers nonsense."""
    said = str(error) or type(error).__name__
    return ProgramEnd(Outcome.ENGINE_GONE, words=_bounded(f"lost the container engine: {said}"))


def pull_failed(image: str, status: int, said: str) -> ProgramEnd:
    """Why an image could not be pulled."""
    words = _bounded(f"the image {image} could not be pulled: {said}")
    if _any(_DISK_FULL, said):
        return ProgramEnd(Outcome.DISK_FULL, words=words)
    if _any(_PASSING, said):
        return ProgramEnd(Outcome.PULL_FAILED, words=words)
    if status in (400, 401, 403, 404) or _any(_NO_IMAGE, said):
        return ProgramEnd(Outcome.IMAGE_MISSING, words=words)
    return ProgramEnd(Outcome.PULL_FAILED, words=words)


def not_started(status: int, said: str) -> ProgramEnd:
    """Why a container could not be created or started."""
    if _any(_DISK_FULL, said):
        return ProgramEnd(
            Outcome.DISK_FULL, words=_bounded(f"the container engine's disk is full: {said}")
        )
    if status == 404 and "no such image" in said.lower():
        words = _bounded(f"its image was removed meanwhile: {said}")
        return ProgramEnd(Outcome.PULL_FAILED, words=words)
    is_passing = _any(_PASSING, said)
    if not is_passing and (400 <= status < 500 or _any(_JOBS_FAULT, said)):
        return ProgramEnd(
            Outcome.NOT_STARTED, words=_bounded(f"the container could not be started: {said}")
        )
    return ProgramEnd(
        Outcome.ENGINE_GONE, words=_bounded(f"the container engine failed ({status}): {said}")
    )


def _any(words: tuple[str, ...], said: str) -> bool:
    lowered = said.lower()
    return any(word in lowered for word in words)


def _bounded(text: str) -> str:
    return bounded(text, MOST_WORDS_BYTES)
