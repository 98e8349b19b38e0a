"""Lines in the file store: a gateway shows them, or a note says where they are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from longshore.client.archived_logs import read_archived
from longshore.model.log_archive import LogPart

PARTS = [
    LogPart(
        up_to=(5, seq),
        lines=2,
        archive=bytes([seq]) * 32,
        generation=1,
        start=0,
        size=9,
        archived_at=datetime(2026, 1, 31, tzinfo=UTC),
    )
    for seq in (2, 4)
]


class Connected:
    """A connection to this address, in a fleet without gateways."""

    def __init__(self, address: str) -> None:
        self.addresses = (address,)

    async def workers(self) -> tuple[()]:
        return ()


def a_line(seq: int) -> dict[str, Any]:
    return {
        "token": 5,
        "seq": seq,
        "attempt": 1,
        "at": "2026-01-31T12:00:00.000000Z",
        "stream": "stdout",
        "text": f"line {seq}",
    }


PAGES = {
    "/dispatcher/jobs/7/logs?after=0-0&attempt=1": ([a_line(1), a_line(2)], "5-2"),
    "/dispatcher/jobs/7/logs?after=5-2&attempt=1": ([a_line(3), a_line(4), a_line(5)], "5-5"),
    "/dispatcher/jobs/8/logs?after=0-0": ([a_line(1), a_line(2)], "5-2"),
}


class Answers(BaseHTTPRequestHandler):
    """Answers as a gateway that has these pages and no others."""

    def do_GET(self) -> None:
        lines, following = PAGES.get(self.path, (None, ""))
        self.send_response(404 if lines is None else 200)
        self.end_headers()
        if lines is not None:
            self.wfile.write(json.dumps({"lines": lines, "next": following}).encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


async def texts(address: str, job: int, attempt: int | None = None) -> list[str]:
    connection: Any = Connected(address)
    lines = read_archived(connection, job, attempt, (0, 0), PARTS)
    return [line.text async for line in lines]


async def test_a_gateway_is_asked_page_by_page_up_to_the_end_of_the_parts(url: str) -> None:
    assert await texts(url, 7, 1) == [f"line {n}" for n in range(1, 5)]


async def test_what_a_gateway_does_not_show_is_a_note(url: str) -> None:
    *lines, note = await texts(url, 8)
    assert lines == ["line 1", "line 2"]
    assert note.startswith(f"2 lines are archived in the file store (blob {'04' * 32}")
    assert "answered 404" in note


async def test_without_a_gateway_each_part_is_a_note() -> None:
    notes = await texts("tcp://d:7702", 7)
    assert len(notes) == 2
    assert all("no gateway is known" in note for note in notes)
