"""`longshore limits try`: what it reads, what it refuses, and what it prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from click.testing import CliRunner

from longshore.cli.commands.limits import limits
from longshore.cli.trial_input import read_rules, read_trace, trace_of_store
from longshore.client.connection import Connection
from longshore.errors import InvalidInput
from longshore.model.limits import JobLimit, LimitRule, Rate
from longshore.testing.builders import Scene, a_job, done
from longshore.testing.memory import MemoryStore
from longshore.testing.rehearsal import Arrival

RULES = """
[limits."tenant=*"]
concurrency = 1

[limits."api=maps"]
rate = "2/s"
burst = 2
weight = 2
"""
TRACE = """at_s,run_s,tenant,units,priority,keys,fair
0,2,acme,,,,
0,2,acme,,5,,
0.5,1,bolt,2,,api=maps region=eu,api=maps
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    rules, trace = tmp_path / "rules.toml", tmp_path / "trace.csv"
    rules.write_text(RULES)
    trace.write_text(TRACE)
    return str(rules), str(trace)


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(limits, ["try", *args], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.exit_code, result.output


def test_rules_and_traces_are_read(files: tuple[str, str]) -> None:
    assert read_rules(files[0]) == [
        LimitRule("tenant=*", 1),
        LimitRule("api=maps", rate=Rate(2, 1.0, 2), weight=2.0),
    ]
    bolt = tuple(JobLimit(key, units=2) for key in ("tenant=bolt", "api=maps", "region=eu"))
    acme = (JobLimit("tenant=acme"),)
    assert read_trace(files[1]) == [
        Arrival(0, 2, acme),
        Arrival(0, 2, acme, priority=5),
        Arrival(0.5, 1, bolt, fair="api=maps"),
    ]


def test_a_table_says_who_would_wait_for_what(files: tuple[str, str]) -> None:
    _, output = run(files[0], "--arrivals", files[1])
    first, heads, rule, *_ = output.splitlines()
    assert first == "3 jobs in 4.0 s; none waited for a free slot"
    assert heads.split()[:4] == ["RULE", "KEYS", "JOBS", "WAITED"]
    assert rule.split()[:4] == ["tenant=*", "2", "3", "33%"]
    heads, fair = output.splitlines()[-2:]
    assert heads.split()[:4] == ["FAIR", "KEY", "WEIGHT", "JOBS"]
    assert fair.split()[:3] == ["api=maps", "2", "1"]


def test_the_document_has_every_key(files: tuple[str, str]) -> None:
    _, output = run(files[0], "--arrivals", files[1], "--slots", "1", "--json")
    document = msgspec.json.decode(output)
    assert [one["key"] for one in document["keys"]] == [
        "api=maps",
        "region=eu",
        "tenant=acme",
        "tenant=bolt",
    ]
    assert document["slots"]["max_s"] == pytest.approx(3.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("limits = 3", "has to consist of tables"),
        ('[limits."tenant=*"]\nat_once = 3', "line 1: 'tenant=.' has 'at_once'; a rule has"),
        ('\n[limits."tenant=*"]\nrate = "5"', "line 2: '5' is no rate"),
        ('[limits."tenant=*"]\nburst = 5\nconcurrency = 2', "burst goes with rate"),
        ('[limits."tenant=*"]\nconcurrency = "2"', "concurrency has to be a whole number"),
        ('[limits."tenant=*"]\nweight = "2"', "weight has to be a number, not '2'"),
        ('[limits."tenant=*"]\nweight = 0', "weight"),
        ('[limits."tenant=*"]', "needs a concurrency, a rate or a weight"),
        ("[limits.tenant]\nconcurrency = 1", "'tenant' is no key of a limit"),
        ("limits = = 3", "is no TOML: .*line 1"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=why) as raised:
        read_rules(str(file))
    assert str(file) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("at_s,tenant\n0,a\n", "line 1: there is no column 'run_s'"),
        ("at_s,run_s\n0,1\n0,x\n", "line 3: run_s is 'x', which is no number"),
        ("at_s,run_s\n-1,1\n", "line 2: at_s is -1; it has to be 0 or more"),
        ("at_s,run_s\nnan,1\n", "line 2: at_s is nan"),
        ("at_s,run_s,units\n0,1,1.5\n", "line 2: units is 1.5; it has to be a whole number"),
        ("at_s,run_s,units,t\n0,1,0,a\n", "line 2: a job takes at least one unit"),
        ("at_s,run_s,tenant\n0,1\n", "line 2: it has not as many fields as the header"),
        ("at_s,run_s\n0,1,2\n", "line 2: it has not as many fields as the header"),
        ("at_s,run_s,keys\n0,1,acme\n", "line 2: 'acme' is no key of a limit"),
        ("at_s,run_s,fair\n0,1,acme\n", "line 2: fair_by: 'acme' is no key"),
        ("at_s,run_s,t,keys\n0,1,a,t=a\n", "line 2: the key 't=a' is given twice"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=why) as raised:
        read_trace(str(file))
    assert str(file) in str(raised.value)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("try",), "name the file of the rules"),
        (("try", "rules.toml"), "give a trace"),
        (("try", "rules.toml", "--arrivals", "a", "--from-store", "2h"), "give a trace"),
        (("try", "rules.toml", "--arrivals", "a", "--rate", "5/s"), "go with set"),
        (("show", "t=a", "--slots", "4"), "go with try"),
        (("--workers", "4"), "go with try"),
    ],
)
def test_options_that_do_not_go_together_are_refused(args: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(limits, args)
    assert result.exit_code == 2
    assert why in result.output


async def test_a_trace_is_made_of_jobs_that_have_run() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    passed = timedelta()
    scene = Scene(MemoryStore(lambda: now + passed))
    slot = await scene.attend()
    await scene.accepted(a_job(limits=(JobLimit("t=a", 1),), priority=3), a_job(delay_s=3600))
    passed += timedelta(seconds=5)
    [attempt] = await scene.claim(slot)
    passed += timedelta(seconds=2)
    await scene.finish(done(attempt))
    connection = cast(Connection, SimpleNamespace(jobs=scene.store.jobs))
    since = now - timedelta(seconds=10)
    found = await trace_of_store(connection, since, 100)
    assert found == [Arrival(10, 2, (JobLimit("t=a", 1),), priority=3)]
    assert await trace_of_store(connection, now + timedelta(seconds=1), 100) == []
