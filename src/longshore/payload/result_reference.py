"""What stands for the result of a job of a group, in the arguments of another."""

from __future__ import annotations

from typing import Any

from longshore.errors import InvalidInput
from longshore.payload.references import Reference


class ResultReference:
    """Stands for the result of a job of a group, or for a part of it, in the arguments of others.

    `result["pages"][0]` stands for that part of it.
    """

    def __init__(self, group: object, reference: Reference, returns: Any = Any) -> None:
        self.group = group
        self.reference = reference
        self.returns = returns
        """What it is, by the annotation of the job's function; `Any` if that is not known."""

    # Python would take what can be indexed for a sequence without end.
    __iter__ = None

    def __repr__(self) -> str:
        path = "".join(f"[{step!r}]" for step in self.reference.path)
        what = "results" if self.reference.is_map else "result"
        return f"<the {what} of '{self.reference.job}'{path}>"

    def __getitem__(self, step: object) -> ResultReference:
        if self.reference.is_map:
            raise InvalidInput(f"{self!r} are one list: take it whole, and choose in the job")
        if isinstance(step, bool) or not isinstance(step, str | int):
            raise InvalidInput(f"{self!r} has no part {step!r}; give a name or an index")
        job, path, _ = self.reference
        return ResultReference(self.group, Reference(job, (*path, step)))
