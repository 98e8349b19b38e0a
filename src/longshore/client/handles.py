"""`Handles`: the handles of many jobs, each made only when it is asked for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, overload
from uuid import UUID

from msgspec import convert

from longshore.client.clients import Clients
from longshore.client.handle import Awaited, Handle, Unpack, awaited, handles_of
from longshore.client.kind import Call
from longshore.model.job import Ended
from longshore.wire.messages import SubmitAnswer

R = TypeVar("R")

_ID_BYTES: Final = 16


class JobRecords(Generic[R]):
    """What is kept of many submitted jobs: 28 bytes of each, and each kind once."""

    def __init__(self, access: Clients) -> None:
        self._access = access.acting()
        self._ids = bytearray()
        self._numbers = array("Q")
        self._kind_at = array("I")
        self._kinds: dict[tuple[str, Unpack[R]], int] = {}
        self._kind_list: list[tuple[str, Unpack[R]]] = []
        self._existing: set[int] = set()
        self._known: dict[UUID, Ended] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def reserve(self, calls: Sequence[Call[R]]) -> int:
        """Makes room for jobs that are being sent; the position of the first."""
        start = len(self)
        self._ids.extend(bytes(_ID_BYTES * len(calls)))
        self._numbers.frombytes(bytes(self._numbers.itemsize * len(calls)))
        self._kind_at.extend([self._kind_of(call) for call in calls])
        return start

    def _kind_of(self, call: Call[R]) -> int:
        kind = (call.submission.kind, call._unpack)
        found = self._kinds.setdefault(kind, len(self._kind_list))
        if found == len(self._kind_list):
            self._kind_list.append(kind)
        return found

    def fill(self, start: int, answers: Sequence[SubmitAnswer]) -> None:
        """Notes what a dispatcher answered for the jobs from this position on."""
        end = start + len(answers)
        ids = b"".join([answer.id.bytes for answer in answers])
        self._ids[start * _ID_BYTES : end * _ID_BYTES] = ids
        self._numbers[start:end] = array("Q", [answer.number for answer in answers])
        self._existing.update(at for at, one in enumerate(answers, start) if one.existing)

    def awaited(self, positions: range) -> Awaited:
        """The jobs at these positions; to wait for them takes no handles."""
        ids = bytes(self._ids)
        packed = [ids[at * _ID_BYTES : (at + 1) * _ID_BYTES] for at in positions]
        return Awaited(convert(packed, list[UUID]), (), self._known.update)

    def handle(self, at: int) -> Handle[R]:
        """A handle of the job at a position. All handles of a job share its outcome."""
        id = convert(bytes(self._ids[at * _ID_BYTES : (at + 1) * _ID_BYTES]), UUID)
        kind, unpack = self._kind_list[self._kind_at[at]]
        handle = Handle(
            self._access,
            id,
            self._numbers[at],
            kind,
            unpack,
            existing=at in self._existing,
            known=self._known,
        )
        # A test kit may stand in while the handle is made; the handle must outlive it.
        handle._access = self._access
        return handle


class Handles(Sequence[Handle[R]]):
    """The handles of the jobs of one `submit_many`, in the order of its calls.

    It makes a handle each time one is asked for. `list(handles)` makes all of them.
    """

    def __init__(self, records: JobRecords[R], positions: range | None = None) -> None:
        self.records = records
        self.positions = range(len(records)) if positions is None else positions

    def __repr__(self) -> str:
        return f"<Handles of {len(self):,} jobs>"

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Handle[R]]:
        return map(self.records.handle, self.positions)

    @overload
    def __getitem__(self, index: int) -> Handle[R]: ...
    @overload
    def __getitem__(self, index: slice) -> Handles[R]: ...
    def __getitem__(self, index: int | slice) -> Handle[R] | Handles[R]:
        if isinstance(index, slice):
            return Handles(self.records, self.positions[index])
        return self.records.handle(self.positions[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handles | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[Handle[Any]]) -> list[Handle[Any]]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Handle[Any]]) -> list[Handle[Any]]:
        return [*other, *self]


def awaited_of(handles: Iterable[Handle[Any]]) -> Awaited:
    """The jobs of these handles; raises `InvalidInput` for anything else."""
    if isinstance(handles, Handles):
        return handles.records.awaited(handles.positions)
    return awaited(handles_of(handles))
