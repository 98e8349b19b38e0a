"""Bulks as tables, and how far one is while a command waits for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from rich.text import Text

from longshore.cli.view.show import Table, View, time
from longshore.cli.view.waiting import LOOK_S, SAY_S, bar_on_stderr
from longshore.client.connection import Connection
from longshore.core.bulk_words import progress_words, refusal_lines
from longshore.core.bulks import action_words, search_words, share
from longshore.core.text import visible
from longshore.errors import Unavailable
from longshore.model.bulk import BulkRun, BulkState
from longshore.run.ready import note


def bulks_view(bulks: Sequence[BulkRun]) -> View:
    """Bulks, newest first."""
    head = ("bulk", "state", "action", "search", "done", "left", "began", "by")
    rows = [
        (
            str(one.number),
            one.state.value,
            action_words(one.new),
            search_words(one.new.wanted),
            f"{one.done:,}",
            f"{one.matched - one.done:,}",
            time(one.created_at),
            one.new.by,
        )
        for one in bulks
    ]
    numbers = frozenset({"bulk", "done", "left"})
    table = Table(head, rows, numbers, optional=("by", "began"))
    return View([table] if rows else [], "no bulks; `longshore jobs SEARCH --all ACTION` makes one")


def bulk_view(bulk: BulkRun) -> View:
    """One bulk, and how far it is."""
    stopped = f" by {bulk.stopped_by}" if bulk.stopped_by else ""
    ended = f"{time(bulk.ended_at)}{stopped}" if bulk.ended_at else ""
    lines = [
        f"bulk      {bulk.number} ({bulk.new.id})",
        f"search    {search_words(bulk.new.wanted)}",
        f"action    {action_words(bulk.new)}",
        f"progress  {progress_words(bulk)} ({100 * share(bulk):.0f} %)",
        f"began     {time(bulk.created_at)}{f' by {bulk.new.by}' if bulk.new.by else ''}",
        *([f"ended     {ended}"] if ended else []),
        *refusal_lines(bulk.refused),
    ]
    return View([Text(visible(line)) for line in lines])


async def wait_for_bulk(connection: Connection, bulk: BulkRun) -> BulkRun:
    """The bulk after its end; meanwhile it shows how far it is."""
    with (_Live if sys.stderr.isatty() else _Lines)(bulk) as view:
        while bulk.state is BulkState.RUNNING:
            await asyncio.sleep(LOOK_S)
            # The bulk outlives dispatchers: it waits for another one.
            with suppress(Unavailable):
                bulk = await connection.bulks.show(bulk.new.id)
            view.show(bulk)
    return bulk


class _Lines:
    """Prints a line when the counts change, at most every `SAY_S`: for logs and pipes."""

    def __init__(self, bulk: BulkRun) -> None:
        self._number = bulk.number
        self._last = ""
        self._said_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            number = self._number
            note(f"bulk {number} goes on; `longshore bulk cancel {number}` cancels it")

    def show(self, bulk: BulkRun) -> None:
        """Prints the counts, if they are news."""
        now, words = asyncio.get_running_loop().time(), progress_words(bulk)
        if words != self._last and now >= self._said_at + SAY_S:
            self._last, self._said_at = words, now
            note(f"bulk {bulk.number} {words}")


class _Live(_Lines):
    """Redraws one line: a bar, and the counts."""

    def __init__(self, bulk: BulkRun) -> None:
        super().__init__(bulk)
        self._rich = bar_on_stderr()
        self._task = self._rich.add_task(visible(f"bulk {bulk.number}"), total=1.0)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._rich.stop()
        super().__exit__(kind)

    def show(self, bulk: BulkRun) -> None:
        """Redraws the line."""
        words = visible(f"bulk {bulk.number} {progress_words(bulk)}")
        self._rich.update(self._task, description=words, completed=share(bulk))
