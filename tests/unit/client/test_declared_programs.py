"""`app.command` and `app.container`: what is declared, what is refused, what is submitted."""

from __future__ import annotations

from typing import Any

import pytest

import longshore
from longshore.errors import AppError, InvalidArguments
from longshore.model.program import Action, Command, Outcome, Rule
from longshore.model.worker import Pool
from longshore.payload.values import unpack


@pytest.fixture
def app() -> longshore.App:
    return longshore.App("lab")


def test_its_placeholders_are_its_parameters(app: longshore.App) -> None:
    resize = app.command(
        "resize", ["convert", "{source}", "-resize", "{size}"], defaults={"size": "10x10"}
    )
    info = app.handlers()["resize"].info
    assert info.pool == Pool.COMMAND
    assert info.parameters is not None
    assert [(one.name, one.required) for one in info.parameters] == [
        ("source", True),
        ("size", False),
    ]
    assert unpack(resize.call(source="a b.png").submission.args) == {"source": "a b.png"}
    assert resize(source="a b.png") == Command(argv=("convert", "a b.png", "-resize", "10x10"))


def test_what_it_needs_of_a_worker_is_told(app: longshore.App) -> None:
    app.command("plain", ["true"])
    app.container("boxed", image="x", inputs=["photos@3"], on=longshore.lost.retry_free)
    infos = {kind: handler.info for kind, handler in app.handlers().items()}
    assert not infos["plain"].files
    assert not infos["plain"].lost_free
    assert infos["boxed"].pool == Pool.CONTAINER
    assert infos["boxed"].files
    assert infos["boxed"].lost_free


def test_its_filesets_are_told_with_defaults_filled_in(app: longshore.App) -> None:
    app.command(
        "sum",
        ["sum", "{year}"],
        inputs=["photos@3", {"fileset": "{album}-{year}"}, {"from": "{step}"}],
        outputs=["sums-{year}"],
        defaults={"year": 2026},
    )
    info = app.handlers()["sum"].info
    assert info.inputs == ("photos@3", "{album}-2026", "")
    assert info.outputs == ("sums-2026",)


def test_no_process_of_programs_opens_the_apps_resources(app: longshore.App) -> None:
    app.command("plain", ["true"])
    app.on_start(lambda: None)
    assert app.lifespan(Pool.COMMAND) is None


def test_rules_in_code_and_as_text_are_kept_in_order(app: longshore.App) -> None:
    made = app.command("x", ["x"], on=[longshore.exit(75).retry(5), "oom: retry(2, memory=x2)"])
    assert made().rules == (
        Rule(Outcome.EXIT, (75,), Action.RETRY, 5),
        Rule(Outcome.OUT_OF_MEMORY, (), Action.RETRY, 2, 2.0),
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": []}, "command 'x': argv is empty"),
        ({"argv": "ls -l"}, "command 'x': 'ls -l' is one text; give a list of words"),
        ({"argv": ["x", "{a.b}"]}, "'{a.b}' is no placeholder"),
        ({"argv": ["x"], "defaults": {"q": 1}}, "defaults has 'q', but no {q} stands in it"),
        ({"argv": ["x"], "env": {"LONGSHORE_X": "1"}}, "names that begin with LONGSHORE_"),
        ({"argv": ["x"], "memory": "lots"}, "'lots' is no size; write it like 512m or 8g"),
        ({"argv": ["x"], "cpu_s": -1}, "limit cpu_s is -1"),
        ({"argv": ["x"], "on": [longshore.oom]}, "say what it means, like .retry(5)"),
        ({"argv": ["x"], "on": 3}, "give a list of rules"),
        ({"argv": ["x"], "folder": "../x"}, "leads out of the program's own folder"),
        ({"argv": ["x"], "outputs": [{"fileset": "a b"}]}, "the fileset 'a b' has a character"),
        ({"argv": ["x"], "retires": 3}, "did you mean 'retries'?"),
        ({"argv": ["x"], "kind": "longshore.x"}, "begins with 'longshore.'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(
    app: longshore.App, fields: dict[str, Any], words: str
) -> None:
    kind = fields.pop("kind", "x")
    with pytest.raises(longshore.errors.LongshoreError) as caught:
        app.command(kind, **fields)
    assert words in str(caught.value)
    assert app.handlers() == {}


def test_two_kinds_of_one_name_are_refused(app: longshore.App) -> None:
    app.command("x", ["x"])
    with pytest.raises(AppError, match="already has a job 'x'"):
        app.container("x", image="x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sauce": "a"}, "unexpected keyword argument 'sauce' (nearest: 'source')"),
        ({}, "missing a required argument: 'source'"),
        ({"source": b"bytes"}, "argument 'source' expected"),
    ],
)
def test_wrong_arguments_are_refused_at_the_submit(
    app: longshore.App, given: dict[str, Any], words: str
) -> None:
    resize = app.command("resize", ["convert", "{source}"])
    with pytest.raises(InvalidArguments) as caught:
        resize.call(**given)
    assert words in str(caught.value)


def test_an_argument_cannot_lead_out_of_the_programs_folder(app: longshore.App) -> None:
    made = app.command("x", ["x"], folder="{where}")
    with pytest.raises(longshore.errors.InvalidInput, match="leads out"):
        made(where="../../etc")
