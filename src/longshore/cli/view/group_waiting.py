"""Waits for a group, and meanwhile shows on standard error how far it is."""

from __future__ import annotations

import asyncio
import sys
from typing import Self

from longshore.cli.view.groups import ended_jobs
from longshore.cli.view.waiting import LOOK_S, SAY_S, bar_on_stderr
from longshore.client.connection import Connection
from longshore.core.group_words import in_states
from longshore.core.text import visible
from longshore.model.group import Group, GroupHead, GroupSubmitted
from longshore.model.job import Ended
from longshore.run.ready import note


async def wait_for_group(
    connection: Connection, answer: GroupSubmitted, head: GroupHead, within_s: float | None
) -> Ended | None:
    """A group's outcome; None if it did not end within the time allowed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (float("inf") if within_s is None else within_s)
    with (_Live if sys.stderr.isatty() else _Lines)(answer.number, head) as view:
        while True:
            left_s = max(0.0, deadline - loop.time())
            ended = await connection.wait([answer.id], min(left_s, LOOK_S))
            if ended or left_s <= LOOK_S:
                return ended[0] if ended else None
            view.show(await connection.group(answer.id))


class _Lines:
    """Prints a line when the counts change, at most every `SAY_S`: for logs and pipes."""

    def __init__(self, number: int, head: GroupHead) -> None:
        self._number = number
        self._last = ""
        self._said_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            number = self._number
            note(f"group {number} goes on; `longshore group cancel {number}` cancels it")

    def show(self, group: Group) -> None:
        """Prints the counts, if they are news."""
        now, words = asyncio.get_running_loop().time(), in_states(group)
        if words != self._last and now >= self._said_at + SAY_S:
            self._last, self._said_at = words, now
            note(f"group {group.number}: {words}")


class _Live(_Lines):
    """Redraws one line: a bar of the jobs that ended, and where the others are."""

    def __init__(self, number: int, head: GroupHead) -> None:
        super().__init__(number, head)
        self._rich = bar_on_stderr()
        self._task = self._rich.add_task(visible(f"group {number} {head.name}"), total=head.jobs)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._rich.stop()
        super().__exit__(kind)

    def show(self, group: Group) -> None:
        """Redraws the line."""
        words = visible(f"group {group.number} {group.name} · {in_states(group)}")
        self._rich.update(self._task, description=words, completed=ended_jobs(group))
