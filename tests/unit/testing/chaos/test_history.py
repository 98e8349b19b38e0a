"""A history is lines of JSON that many may write, and that a kill may cut off."""

from __future__ import annotations

from pathlib import Path

from longshore.testing.chaos import history as h


def test_what_many_wrote_is_read_by_its_times(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    events: list[h.AnyEvent] = [
        h.Called(at=3, job="a", sort="async", after=("b",)),
        h.Applied(at=1, actor="alba", entries=(("client-1", 1, ""),)),
    ]
    for path, event in zip((one, other), events, strict=True):
        writer = h.Writer(path)
        writer.add(event)
        writer.close()
    assert h.read(one, other, tmp_path / "missing") == events[::-1]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    writer = h.Writer(tmp_path / "it")
    writer.add(h.Accepted(job="a"))
    writer.close()
    with (tmp_path / "it").open("ab") as file:
        file.write(b'{"what":"acc')
    (event,) = h.read(tmp_path / "it")
    assert isinstance(event, h.Accepted)
    assert event.at > 0, "it got the time of its writing"
