"""`longshore.GIVEN`: the mark of a parameter that the worker gives, not the submitter."""

from __future__ import annotations

from typing import Any, Final, NoReturn


class _Given:
    """Stands where a resource will be; used as one, it says what is missing."""

    def __repr__(self) -> str:
        return "longshore.GIVEN"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"there is no resource here to take '{name}' from: a worker gives it to the jobs it "
            "runs; in a call of your own pass it by name"
        )


GIVEN: Final[Any] = _Given()
"""The default of a job's parameter that is the app's resource of the same name."""
