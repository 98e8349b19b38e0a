"""`workers`, `dispatchers` and `capacity`: what they ask, what they print, how they exit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs
from tests.unit.cli.conftest import ScriptedDispatcher

from longshore.core.capacity import capacity, with_peaks
from longshore.model.usage import Peak
from longshore.model.worker import DrainVerdict, KindInfo, KindTerms, Pool, WorkerInfo, WorkerView
from longshore.wire import messages as m

AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
VIEW = WorkerView(
    info=WorkerInfo(
        id=UUID(int=5),
        name="h:9",
        kinds={"b": KindInfo(Pool.PROCESS), "a": KindInfo()},
        pools={Pool.COROUTINE: 100, Pool.PROCESS: 1},
    ),
    session=1,
    dispatcher=UUID(int=6),
    alive=True,
    draining=False,
    running={"a": 2},
    started_at=AT,
    attended_at=AT,
    seen_at=AT,
    cpu_percent=12.4,
    memory_percent=80.0,
)
DISPATCHER = m.DispatcherAnswer(
    id=UUID(int=6), name="d:1", started_at=AT, renewed_no=7, workers=1, alive=True, silent_s=0.0
)

Captured = pytest.CaptureFixture[str]


def test_workers_are_listed_with_what_they_do_for_whom_and_how_they_are(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    gone = structs.replace(
        VIEW, alive=False, running={}, ended_why="not heard of", dispatcher=UUID(int=8)
    )
    dispatcher.answers[m.ListWorkers] = (VIEW, gone)
    dispatcher.answers[m.ListDispatchers] = (DISPATCHER,)
    assert dispatcher.run("workers", "--all") == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert " ".join(first.split()).startswith("h:9 alive a 2 100 1 12 % 80 % d:1 2026-01-31")
    assert first.count("2026-01-31 12:00:00Z") == 2
    assert "a, b" in first
    assert second.split()[1] == "gone"
    assert second.split().count("gone") == 2
    assert second.endswith("not heard of")


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (0, ""),
        (1, "1 worker is gone; `longshore workers --all` shows them too\n"),
        (2, "2 workers are gone; `longshore workers --all` shows them too\n"),
    ],
)
def test_workers_that_are_gone_are_counted_and_listed_only_on_request(
    gone: int, said: str, dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    ended = structs.replace(VIEW, alive=False, ended_why="drained")
    dispatcher.answers[m.ListWorkers] = (VIEW, *[ended] * gone)
    dispatcher.answers[m.ListDispatchers] = (DISPATCHER,)
    assert dispatcher.run("workers") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert shown.err == said
    assert dispatcher.run("workers", "--all") == 0
    shown = capsys.readouterr()
    assert (len(shown.out.splitlines()), shown.err) == (2 + gone, "")
    assert dispatcher.run("workers", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == 1 + gone


def test_gateways_are_listed_only_on_request(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    info = structs.replace(VIEW.info, name="gateway-h:7", gateway=True)
    own = structs.replace(VIEW, info=info)
    dispatcher.answers[m.ListWorkers] = (VIEW, own, structs.replace(own, alive=False))
    dispatcher.answers[m.ListDispatchers] = (DISPATCHER,)
    assert dispatcher.run("workers") == 0
    shown = capsys.readouterr()
    assert ("gateway-h:7" in shown.out, shown.err) == (False, "")
    assert dispatcher.run("workers", "--all") == 0
    assert capsys.readouterr().out.count("gateway-h:7") == 2


def test_capacity_shows_what_kinds_ask_for_beside_what_they_used(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    terms = KindTerms(resources="memory=64m")
    info = structs.replace(VIEW.info, kinds={**VIEW.info.kinds, "a": KindInfo(terms=terms)})
    found = capacity([structs.replace(VIEW, info=info)])
    peak = Peak("a", 3, 50 * 1024**2, 1.25)
    dispatcher.answers[m.ShowCapacity] = with_peaks(found, [peak])
    assert dispatcher.run("capacity") == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert "ASKS FOR" in head
    assert "memory 64 MiB" in first
    assert "memory 50 MiB, cpu 1.25 s" in first
    assert "MiB" not in second
    assert dispatcher.run("capacity", "--json") == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert [one["peak"] and one["peak"]["memory_bytes"] for one in kinds] == [50 * 1024**2, None]


def test_workers_that_hold_jobs_ahead_say_how_many_of_them_run(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    info = structs.replace(
        VIEW.info, kinds={"a": KindInfo(Pool.PROCESS), "b": KindInfo()}, pools=VIEW.info.pools
    )
    running = {"a": 13, "b": 2}
    dispatcher.answers[m.ListWorkers] = (structs.replace(VIEW, info=info, running=running),)
    dispatcher.answers[m.ListDispatchers] = (DISPATCHER,)
    assert dispatcher.run("workers") == 0
    assert "3 running, 12 held ahead (a 13, b 2)" in capsys.readouterr().out


def test_workers_as_json_have_every_field(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ListWorkers] = (VIEW,)
    dispatcher.answers[m.ListDispatchers] = ()
    assert dispatcher.run("workers", "--json") == 0
    printed = json.loads(capsys.readouterr().out)[0]
    assert (printed["id"], printed["queues"]) == (str(UUID(int=5)), [])
    assert printed["pools"] == {"coroutine": 100, "process": 1}
    assert (printed["cpu_percent"], printed["seen_at"]) == (12.4, "2026-01-31T12:00:00.000000Z")
    assert (printed["running"], printed["dispatcher"]) == ({"a": 2}, str(UUID(int=6)))


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "alive"),
        ({"draining": True}, "draining"),
        ({"silent_s": 3.0}, "silent"),
        ({"alive": False}, "gone"),
    ],
)
def test_workers_as_json_have_the_word_that_the_table_shows(
    changes: dict[str, Any], state: str, dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[m.ListWorkers] = (structs.replace(VIEW, **changes),)
    dispatcher.answers[m.ListDispatchers] = ()
    assert dispatcher.run("workers", "--all") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1] == state
    assert dispatcher.run("workers", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == state


@pytest.mark.parametrize(
    ("verdict", "code", "words"),
    [
        (DrainVerdict.DRAINING, 0, "worker h:9 drains: it finishes what it runs, and leaves"),
        (DrainVerdict.ALREADY_DRAINING, 0, "worker h:9 drains already"),
        (DrainVerdict.GONE, 0, "worker h:9 is gone already"),
        (DrainVerdict.AMBIGUOUS, 2, "several workers go by h; give more of the id"),
        (DrainVerdict.NOT_FOUND, 3, "there is no worker h; `longshore workers` lists"),
    ],
)
def test_drain_says_what_it_did(
    verdict: DrainVerdict,
    code: int,
    words: str,
    dispatcher: ScriptedDispatcher,
    capsys: Captured,
) -> None:
    one = code == 0
    answer = m.DrainAnswer("h", UUID(int=5) if one else None, "h:9" if one else "", verdict)
    dispatcher.answers[m.Drain] = (answer,)
    assert dispatcher.run("workers", "drain", "h") == code
    said = capsys.readouterr()
    assert (said.out if one else said.err.removeprefix("error: ")).startswith(words)
    assert one or said.err.startswith("error: ")
    [asked] = dispatcher.asked
    assert isinstance(asked, m.Drain)
    assert asked == m.Drain(1, asked.id, ("h",))
    assert dispatcher.run("workers", "drain", "h", "--json") == code
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == verdict.value


def test_drain_needs_to_know_whom(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    assert dispatcher.run("workers", "drain") == 2
    assert "name the worker" in capsys.readouterr().err


def test_dispatchers_are_listed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    silent = structs.replace(DISPATCHER, name="d:2", alive=False, silent_s=9.5, workers=0)
    dispatcher.answers[m.ListDispatchers] = (DISPATCHER, silent)
    assert dispatcher.run("dispatchers") == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["d:1", "alive", "1", "2026-01-31", "12:00:00Z", "7", "now"]
    assert second.split()[:2] == ["d:2", "silent"]
    assert second.endswith("9.5 s ago")
    assert dispatcher.run("dispatchers", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(one["alive"], one["state"]) for one in printed] == [(True, "alive"), (False, "silent")]


def test_capacity_is_shown_once_for_all_kinds_that_share_their_slots(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    kinds = {**VIEW.info.kinds, "c": KindInfo(), "d": KindInfo()}
    both = structs.replace(VIEW, info=structs.replace(VIEW.info, kinds=kinds))
    dispatcher.answers[m.ShowCapacity] = capacity([both])
    assert dispatcher.run("capacity") == 0
    rows = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["coroutine", "1", "100", "2", "98", "a, c, d"],
        ["process", "1", "1", "0", "1", "b"],
    ]


def test_capacity_says_what_a_pool_has_in_all_if_no_kind_has_all_of_it(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    """Both kinds have a hundred slots, and they are not the same hundred."""
    other = structs.replace(VIEW.info, id=UUID(int=7), kinds={"c": KindInfo()})
    alone = structs.replace(VIEW, running={"a": 0})
    views = [alone, structs.replace(alone, info=other)]
    dispatcher.answers[m.ShowCapacity] = capacity(views)
    assert dispatcher.run("capacity") == 0
    rows = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert ["coroutine", "1", "100", "0", "100", "a, c"] in rows
    assert rows[-2:] == [["coroutine", "2", "200", "0", "200"], ["process", "1", "1", "0", "1"]]


def test_capacity_as_json_is_by_kind(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[m.ShowCapacity] = capacity([VIEW])
    assert dispatcher.run("capacity", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["kinds"][0] == {
        "kind": "a",
        "pool": "coroutine",
        "workers": 1,
        "slots": 100,
        "busy": 2,
        "free": 98,
        "running": 2,
        "resources": "",
        "peak": None,
    }
