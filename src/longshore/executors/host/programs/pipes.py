"""Reads what a command prints, as it comes, on the host's event loop."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from longshore.executors.host.programs.output import ProgramOutput
from longshore.model.log import STDERR, STDOUT

READ_BYTES: Final = 64 * 1024
READS_AT_ONCE: Final = 16
DRAIN_S: Final = 1.0
"""How long output is waited for when nothing of a command is left: others may hold its pipes."""


class Pipes:
    """The standard output and standard error of one command."""

    def __init__(self, stdout: int, stderr: int, output: ProgramOutput) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._open = {stdout: STDOUT, stderr: STDERR}
        self._drained: asyncio.Future[None] = self._loop.create_future()
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._read, descriptor)

    def finish(self) -> None:
        """Reads what is there already: most commands have said all when they have ended."""
        for descriptor in list(self._open):
            for _ in range(READS_AT_ONCE):
                if not self._read(descriptor):
                    break

    @property
    def is_drained(self) -> bool:
        """Whether nothing can come any more."""
        return not self._open

    async def drained(self) -> None:
        """Returns when nothing can come any more, or does not for a while."""
        if self._open:
            await asyncio.wait({self._drained}, timeout=DRAIN_S)

    def close(self) -> None:
        """Reads no more."""
        for descriptor in list(self._open):
            self._close(descriptor)

    def _read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close(descriptor)
            return False
        self._output.write(self._open[descriptor], data)
        return True

    def _close(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        del self._open[descriptor]
        os.close(descriptor)
        if not self._open and not self._drained.done():
            self._drained.set_result(None)
