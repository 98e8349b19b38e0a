"""Inputs from another job of the group: in files and in code, and what is refused at the submit."""

from __future__ import annotations

import pytest
from msgspec import structs

import longshore
from longshore.errors import InvalidInput
from longshore.model.group import GroupPart
from longshore.model.program import Input
from longshore.payload.group_references import check_dependencies
from longshore.payload.references import refuse_outside_a_group
from longshore.payload.values import unpack

from .test_group_file import group

MAKE = "{key: make, command: {argv: [make], outputs: [made]}}"


def flow(use: str, make: str = MAKE) -> str:
    job = f"{{key: use, command: {{argv: [use], inputs: {use}}}}}"
    return f"name: flow\njobs:\n  - {make}\n  - {job}\n"


@pytest.mark.parametrize(
    "inputs",
    ["{from: make}", "[{from: make}]", "[{from: make, fileset: made, path: in}, other]"],
)
def test_job_depends_on_the_one_whose_files_it_reads(inputs: str) -> None:
    _, nodes = group(flow(inputs))
    assert [(node.key, node.after) for node in nodes] == [("make", ()), ("use", (0,))]


def test_elements_of_a_map_may_read_the_files_of_another_job() -> None:
    use = "{key: use, command: {argv: [use], inputs: {from: make}}"
    _, nodes = group(
        f"name: flow\njobs:\n  - {MAKE}\n  - {use}, map: {{over: [1], parameter: stdin}}}}\n"
    )
    assert nodes[1].after == (0,)


@pytest.mark.parametrize(
    ("inputs", "make", "words"),
    [
        ("{from: maek}", MAKE, "'maek'"),
        ("{from: make}", "{key: make, command: [make]}", "'make', which has no outputs"),
        ("{from: make, fileset: x}", MAKE, "'make', which does not make 'x', but 'made'"),
        (
            "{from: make}",
            "{key: make, command: {argv: [make], outputs: [a, b]}}",
            "makes 'a', 'b'; say which with `fileset`",
        ),
        (
            "{from: make}",
            "{key: make, kind: k, map: {over: [1], parameter: x}}",
            "is a map, which has no files of its own; name one of its elements, like 'make/0'",
        ),
        ("{from: make}", "{key: make, gate: true}", "is a gate"),
        ("{from: make, version: 3}", MAKE, "leave one of them out"),
        ("{form: make}", MAKE, "did you mean 'from'?"),
    ],
)
def test_what_no_job_of_the_group_makes_is_refused(inputs: str, make: str, words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        group(flow(inputs, make))
    assert words in str(error.value)


def test_dispatcher_refuses_a_job_that_does_not_depend_on_its_maker() -> None:
    head, (make, use) = group(flow("{from: make}"))
    check_dependencies(GroupPart(head, 0, (make, use)))
    with pytest.raises(InvalidInput, match="on which it does not depend; add 'make'"):
        check_dependencies(GroupPart(head, 0, (make, structs.replace(use, after=()))))
    with pytest.raises(InvalidInput, match="on which it does not depend"):
        check_dependencies(GroupPart(structs.replace(head, jobs=1), 0, (use,)))


def test_only_a_job_of_a_group_has_inputs_from_another() -> None:
    _, (_, use) = group(flow("{from: make}"))
    with pytest.raises(InvalidInput, match="has an input from 'make', and only a job of a group"):
        refuse_outside_a_group(use.job)


def test_declared_program_names_the_job_by_an_argument() -> None:
    app = longshore.App("flow")
    make = app.command("make", ["make"], outputs=["made"])
    use = app.command("use", ["use"], inputs=[Input(maker="{step}", path="in")])
    assert use.call(step="first").files_from == ("first",)
    assert make.call().files_from == ()
    assert unpack(use.call(step="first").submission.args) == {"step": "first"}
