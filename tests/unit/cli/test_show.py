"""How answers look."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from rich.console import Console
from rich.text import Text
from tests.unit.cli.test_commands import job

from longshore.cli.view import lists, show
from longshore.client import jsonable
from longshore.core.text import visible
from longshore.model.job import JobState, Progress, RetryPolicy
from longshore.model.worker import QueueView
from longshore.payload.values import pack

TABLE = show.Table(("name", "n"), [("a\x1b[31m", "1"), ("日本", "22")], right=frozenset({"n"}))


def test_columns_in_a_pipe_are_aligned_even_if_letters_are_wide() -> None:
    lines = show.aligned(TABLE).splitlines()
    assert lines == ["NAME        N", "a\\x1b[31m   1", "日本       22"]


def test_what_a_job_said_cannot_steer_the_terminal() -> None:
    assert visible("a\x1b]0;title\x07\r\x9b\u202eb\tc\n") == (
        "a\\x1b]0;title\\x07\\x0d\\x9b\\x202eb\tc\n"
    )


def test_json_is_json_and_cannot_steer_the_terminal_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = {"text": "a\x9b31m\u2028\x7f\n"}
    show.print_json_line(said)
    show.print_json(said)
    line, document = capsys.readouterr().out.split("\n", 1)
    assert json.loads(line) == json.loads(document) == said
    assert (line + document).replace("\n", "").isprintable()


def test_on_a_terminal_a_table_has_colour_and_takes_text_as_it_is() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=40, color_system="standard")
    console.print(show.as_rich(show.Table(("state",), [("failed",), ("[red]x[/red]",)])))
    assert "\x1b[31mfailed" in out.getvalue()
    assert "[red]x[/red]" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"),
        (2.5, "2.5 s"),
        (119, "119.0 s"),
        (150, "2 min 30 s"),
        (7320, "2 h 02 min"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text


def test_progress_is_told_with_and_without_a_total() -> None:
    assert show.progress(Progress(3)) == "3"
    assert show.progress(Progress(3, 4, "pages")) == "3/4 (75%) pages"
    assert show.progress(Progress(3, 0)) == "3"
    assert show.progress(Progress(0.5, 20_000_000, "bytes")) == "0.5/20,000,000 (0%) bytes"
    assert show.progress(None) == ""


def test_times_are_utc_with_microseconds_whatever_zone_they_came_in() -> None:
    east = datetime(2026, 1, 31, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    assert jsonable.time_text(east) == "2026-01-31T12:00:00.000000Z"
    assert jsonable.time_text(datetime(2026, 1, 31, 12)) == "2026-01-31T12:00:00.000000Z"
    assert show.time(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31 12:00:00Z"
    assert show.time(None) == ""


def test_json_keeps_fields_that_have_their_default() -> None:
    assert jsonable.plain(RetryPolicy()) == {
        "attempts": 1,
        "backoff_s": 1.0,
        "factor": 2.0,
        "max_backoff_s": 3600.0,
        "jitter": 0.2,
    }


def test_a_payload_is_its_value_or_base64_if_it_holds_none() -> None:
    assert jsonable.payload(pack({"a": [b"\x00", 1.5]}, "it")) == {"a": ["AA==", 1.5]}
    assert jsonable.payload(b"\xc1\xff") == "wf8="
    assert jsonable.payload(b"hello", raw=True) == "aGVsbG8="
    assert jsonable.payload(None) is None


def test_a_narrow_terminal_loses_what_matters_least_first() -> None:
    columns = ("name", "state", "target", "error")
    table = show.Table(columns, [("vm:1", "alive", "linux", "x" * 500)], optional=("target",))
    assert show.fitted(table, 80).columns == columns
    narrow = show.fitted(table, 30)
    assert narrow.columns == ("name", "state", "error")
    assert narrow.rows == [("vm:1", "alive", "x" * 16 + "…")]


def test_a_terminal_is_shown_what_is_made_for_it() -> None:
    table = show.Table(("name",), [("in full",)])
    view = show.View([table], screen=[Text("in brief")])
    assert show.rich_parts(view, 80) == [Text("in brief")]
    assert len(show.rich_parts(show.View([table]), 80)) == 1


def test_room_that_one_long_column_does_not_need_goes_to_the_other() -> None:
    table = show.Table(("kind", "error"), [("add", "x" * 500)])
    assert show.fitted(table, 80).rows == [("add", "x" * 73 + "…")]


def test_a_wrapped_text_goes_on_in_the_next_line_and_is_whole() -> None:
    written = io.StringIO()
    names = [f"kind_{number}" for number in range(30)]
    row = ("process", ", ".join(names))
    table = show.Table(("pool", "kinds"), [row], wrapped=frozenset({"kinds"}))
    Console(file=written, width=40).print(show.as_rich(show.fitted(table, 40)))
    assert max(map(len, written.getvalue().splitlines())) <= 40
    assert all(name in written.getvalue() for name in names)


def test_a_long_error_stays_on_its_line() -> None:
    written = io.StringIO()
    console = Console(file=written, width=40)
    table = show.Table(("state", "error"), [("failed", "no\nroute " * 50)])
    console.print(show.as_rich(show.fitted(table, 40)))
    assert max(map(len, written.getvalue().splitlines())) <= 40
    assert len(written.getvalue().strip().splitlines()) == 3


def test_how_far_a_job_is_has_a_bar_on_a_terminal() -> None:
    """Percent before words, so that a narrow column loses the words."""
    said = {
        Progress(1, 3, "files"): "33% reading files",
        Progress(7): "7 reading",
        Progress(9, 3): "100% reading",
        Progress(-1, 3): "0% reading",
        Progress(float("nan"), 3): "nan reading",
    }
    for progress, words in said.items():
        shown = job(state=JobState.RUNNING, progress=progress, step="reading")
        assert show.how_far(shown) == words
    rows = [("33% files",), ("7 files",), ("100%",), ("",)]
    drawn = show.with_bars(show.Table(("progress",), rows)).rows
    bars = ["━━━╌╌╌╌╌╌╌ 33% files", "7 files", "━━━━━━━━━━ 100%", ""]
    assert [row[0] for row in drawn] == bars


def test_progress_and_error_share_a_column_on_a_terminal_if_there_are_both() -> None:
    """At 80 columns there is room for one of them, and a job has one of them."""
    columns = ("number", "progress", "error")
    both = show.Table(columns, [("2", "33%", ""), ("1", "", "no route")])
    shared = show.on_one_line(both)
    assert shared.columns == ("number", "progress / error")
    assert shared.rows == [("2", "33%"), ("1", "no route")]
    alone = show.Table(columns, [("1", "", "no route")])
    assert show.on_one_line(alone) == alone


def test_a_narrow_list_of_queues_keeps_the_states_that_hold_jobs() -> None:
    table = lists.queues_table([QueueView("mail", False, {"delayed": 3, "succeeded": 1})])
    shown = show.fitted(table, 60).columns
    assert {"delayed", "succeeded", "ready", "running", "failed"} <= set(shown)
    assert "cancelling" not in shown
