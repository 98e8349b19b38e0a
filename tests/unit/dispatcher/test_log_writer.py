"""The end of an attempt waits for its own log entries, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast
from uuid import UUID

import pytest

from longshore.dispatcher.log_writer import MOST_BYTES, MOST_ENTRIES, LogWriter
from longshore.errors import StoreUnavailable
from longshore.model.job import LogEntry, LogKind
from longshore.ports import Store
from longshore.testing.virtual import run_virtually

JOB = UUID(int=7)

TOLD_AGAIN_S = 61.0


class Shelf:
    """The one verb of a store that matters here; it answers when told to."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.open = asyncio.Event()
        self.outages = 0
        self.writes = 0

    async def log(self, entries: Sequence[LogEntry]) -> None:
        await self.open.wait()
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("away")
        self.writes += 1
        self.kept += [entry.seq for entry in entries]


def said(token: int, *numbers: int) -> list[LogEntry]:
    return [LogEntry(JOB, token, number, LogKind.TEXT, b"") for number in numbers]


def test_an_end_waits_until_its_log_is_written_even_through_an_outage() -> None:
    async def story() -> None:
        shelf, ends, outages = Shelf(), list[int](), list[StoreUnavailable]()
        written = asyncio.Event()
        book = LogWriter(cast(Store, shelf), outages.append)
        shelf.outages = 3
        book.add(said(1, 1, 2))
        book.after(1, lambda: ends.append(1))
        book.after(2, lambda: ends.append(2))
        assert ends == [2]
        shelf.open.set()
        book.after(1, written.set)
        await written.wait()
        assert ends == [2, 1]
        assert shelf.kept == [1, 2]
        assert len(outages) == 3
        assert not book.unwritten
        await book.close()

    run_virtually(story())


def test_a_book_is_closed_though_the_store_is_away() -> None:
    """An end whose entries were not written gets no ACK: its worker sends it elsewhere."""

    async def story() -> None:
        shelf, ends = Shelf(), list[int]()
        book = LogWriter(cast(Store, shelf), lambda error: None)
        shelf.outages = 1000
        shelf.open.set()
        book.add(said(1, 1, 2))
        book.after(1, lambda: ends.append(1))
        async with asyncio.timeout(60.0):
            await book.close()
        assert (shelf.kept, ends) == ([], [])

    run_virtually(story())


def test_bytes_are_bounded_too() -> None:
    async def story() -> None:
        shelf = Shelf()
        book = LogWriter(cast(Store, shelf), lambda error: None)
        data = bytes(MOST_BYTES // 4)
        for seq in range(1, 7):
            book.add([LogEntry(JOB, seq, seq, LogKind.TEXT, data)])
        assert list(book.unwritten) == [3, 4, 5, 6]
        shelf.open.set()
        await book.close()
        assert shelf.kept == [3, 4, 5, 6]
        assert shelf.writes == 4
        book.add(said(9, 1))
        assert list(book.unwritten) == [9]

    run_virtually(story())


def test_past_the_bound_the_oldest_go_and_their_ends_do_not_wait() -> None:
    async def story() -> None:
        shelf, ends = Shelf(), list[int]()
        book = LogWriter(cast(Store, shelf), lambda error: None)
        book.add(said(1, 1))
        book.after(1, lambda: ends.append(1))
        book.add(said(2, *range(1, MOST_ENTRIES + 1)))
        assert ends == [1]
        shelf.open.set()
        await book.close()
        assert shelf.kept == list(range(1, MOST_ENTRIES + 1))

    run_virtually(story())


def test_that_entries_are_dropped_is_told_seldom(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        shelf = Shelf()
        book = LogWriter(cast(Store, shelf), lambda error: None)
        book.add(said(1, *range(MOST_ENTRIES)))
        for number in range(100):
            book.add(said(2, number))
        assert len(caplog.messages) == 1
        await asyncio.sleep(TOLD_AGAIN_S)
        book.add(said(3, *range(3_000)))
        assert "1099 log entries were dropped" in caplog.messages[-1]
        shelf.open.set()
        await book.close()

    run_virtually(story())
