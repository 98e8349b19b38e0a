"""Which exceptions of a job are tried again: `retry_on` and `fail_on`."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from longshore.errors import AppError

ExceptionClasses = type[BaseException] | tuple[type[BaseException], ...]
"""An exception class or a tuple of them, as `except` takes them. Subclasses are meant too."""


class RetryRule(NamedTuple):
    """Says of an exception whether its job is tried again, if it has retries left."""

    retry_on: ExceptionClasses = BaseException
    fail_on: ExceptionClasses = ()

    def but(
        self, retry_on: ExceptionClasses | UnsetType, fail_on: ExceptionClasses | UnsetType
    ) -> RetryRule:
        """A copy with those that are given; raises `AppError` for anything but exceptions."""
        return RetryRule(
            self.retry_on if retry_on is UNSET else _checked("retry_on", retry_on),
            self.fail_on if fail_on is UNSET else _checked("fail_on", fail_on),
        )

    def is_final(self, error: BaseException) -> bool:
        """Whether the job fails for good. Where both match, `fail_on` wins."""
        return isinstance(error, self.fail_on) or not isinstance(error, self.retry_on)


def _checked(option: str, given: object) -> ExceptionClasses:
    classes = given if isinstance(given, tuple) else (given,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise AppError(
                f"{option}: {one!r} is not an exception class; give a class or a tuple of them, "
                f"like {option}=(ConnectionError, TimeoutError)"
            )
    return classes
