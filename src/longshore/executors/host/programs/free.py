"""The kinds whose jobs describe their programs themselves."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from longshore.core.programs import FREE_TYPES, described, parameters_of
from longshore.errors import InvalidInput
from longshore.model.program import COMMAND_KIND, AnyProgram
from longshore.model.worker import KindInfo, Pool
from longshore.payload import values


class FreeHandler:
    """Runs what the arguments of a job say (see `ports.Handler` and `ports.ProgramHandler`)."""

    is_async = True

    def __init__(self, kind: str) -> None:
        pool = Pool.COMMAND if kind == COMMAND_KIND else Pool.CONTAINER
        self.kind = kind
        self.info = KindInfo(pool, parameters_of(FREE_TYPES[kind]), files=True)

    @property
    def function(self) -> Callable[..., object]:
        """None: it runs programs."""
        raise AttributeError(f"'{self.kind}' runs programs, no function")

    def program(self, args: bytes) -> AnyProgram:
        """The program that the arguments describe."""
        try:
            given = values.unpack(args)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"job '{self.kind}': its arguments cannot be read: {error}"
            ) from None
        return described(self.kind, given)

    def bind(self, args: bytes) -> dict[str, object]:
        """The arguments as they are."""
        return dict(values.unpack(args))

    def pack_result(self, value: object) -> bytes:
        """The result as it is stored."""
        return values.pack(value, f"the result of job '{self.kind}'")

    def is_final(self, error: BaseException) -> bool:
        """What went wrong before a program began may go well the next time."""
        return False
