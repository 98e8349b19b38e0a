"""The report: one page without anything from elsewhere, and numbers for programs."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from pathlib import Path

from rich.console import Console

from longshore.testing.chaos import history as h
from longshore.testing.chaos.checker import judge
from longshore.testing.chaos.page import faults, html, outcomes, recoveries
from longshore.testing.chaos.report import Report, headline, show


def report(*more: h.AnyEvent) -> Report:
    events: list[h.AnyEvent] = [
        h.Phase(at=1, name="storm"),
        h.Struck(at=2, fault=1, deed="kill", whom="worker-1", worker="worker-1.1"),
        h.Healed(at=4, fault=1),
        h.Seen(at=5, job="a", state="succeeded"),
        h.Called(at=1.5, job="a", sort="async"),
        h.Accepted(at=1.6, job="a"),
        h.Found(at=20, job="a", kind="step", state="succeeded", ends=("succeeded",)),
        h.Phase(at=11, name="calm"),
        *more,
    ]
    return Report(
        seed=7,
        store="SQLite",
        seconds=10,
        folder="runs/seed-7",
        shape="2 <dispatchers>",
        verdict=judge(sorted(events, key=lambda event: event.at)),
        left_out=("a slow disk",),
        again="longshore chaos --seed 7",
    )


LOST = h.Accepted(at=3, job="b")


def test_the_page_holds_all_it_needs() -> None:
    page = html(report(LOST))
    assert "BROKEN" in page
    assert "2 &lt;dispatchers&gt;" in page
    for outside in ("<script", "<link", "http://", "https://", "@import", "url("):
        assert outside not in page


def test_the_plots_are_pictures_with_a_mark_for_each_thing() -> None:
    verdict = report().verdict
    for plot, mark in ((outcomes, "rect"), (faults, "rect"), (recoveries, "circle")):
        picture = ET.fromstring(plot(verdict))
        assert len(list(picture.iter(mark))) >= 1, plot
    (dot,) = ET.fromstring(recoveries(verdict)).iter("circle")
    assert "recovered 1.00 s" in "".join(dot.itertext())


def test_the_plots_of_an_empty_run_are_pictures_too() -> None:
    for plot in (outcomes, faults, recoveries):
        ET.fromstring(plot(judge([])))


def test_the_terminal_names_what_is_broken_and_how_to_see_it_again() -> None:
    written = io.StringIO()
    show(report(LOST), Console(width=120, file=written), Path("report.html"))
    said = written.getvalue()
    assert "lost (G1): b" in said
    assert "longshore chaos --seed 7" in said
    assert "left out: a slow disk" in said


def test_json_has_the_verdict_in_one_word() -> None:
    assert report().as_json()["kept"] is True
    assert report(LOST).as_json()["kept"] is False
    assert headline(report()).startswith("KEPT: 1 jobs accepted, 1 finished")
