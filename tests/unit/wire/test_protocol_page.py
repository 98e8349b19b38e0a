"""docs/protocol.md says what the code does: each field, each value, each byte of its examples."""

from __future__ import annotations

import re
from enum import Enum
from uuid import UUID

import msgspec
import pytest
from tests.unit.wire import protocol_page as page

from longshore.model.job import Submission
from longshore.model.reports import SuccessReport
from longshore.model.worker import KindInfo
from longshore.payload.values import pack
from longshore.wire import messages as m
from longshore.wire.codec import encode, ok

TEXT = page.PAGE.read_text()
SECTIONS = page.sections(TEXT)
DESCRIBED = page.described()
STRUCTS = {title: kind for title, kind in DESCRIBED.items() if issubclass(kind, msgspec.Struct)}
ENUMS = {title: kind for title, kind in DESCRIBED.items() if issubclass(kind, Enum)}

JOB = UUID("019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b")
WORKER = UUID("019a2b3c-0000-7000-8000-000000000001")
ARGS = pack({"n": 21}, "the arguments")
EXAMPLES = {
    "ready": encode(
        m.Ready(
            v=2, worker=WORKER, name="press", kinds={"double": KindInfo()}, pools={"coroutine": 2}
        )
    ),
    "welcome": encode(m.Welcome(WORKER, 1, 1.0, 15.0)),
    "ping": encode(m.Ping(WORKER, 1, 1, ((JOB, 7),))),
    "pong": encode(m.Pong(WORKER, 1, 1.0, 15.0)),
    "jobs": encode(m.Jobs(WORKER, 1, (m.Assignment(JOB, 7, 42, "double", ARGS, 30.0),))),
    "done": encode(m.Done(WORKER, (SuccessReport(JOB, 7, result=pack(42, "the result")),))),
    "ack": encode(m.Ack(WORKER, ((JOB, 7),))),
    "submit": encode(m.Submit(1, (Submission(JOB, "double", ARGS),))),
    "ok": ok(1, [m.SubmitAnswer(JOB, 42)]),
}


@pytest.mark.parametrize("title", STRUCTS)
def test_every_field_is_there_with_its_type_and_default(title: str) -> None:
    assert title in SECTIONS, f"docs/protocol.md has no section '{title}'"
    wanted = [
        f"| `{name}` | {kind} | {default} |" for name, kind, default in page.rows_of(STRUCTS[title])
    ]
    shown = ["| {} | {} | {} |".format(*cells[:3]) for cells in page.table(SECTIONS[title])]
    assert shown == wanted, "the table should have these rows, each with a meaning:\n" + "\n".join(
        wanted
    )


@pytest.mark.parametrize("title", ENUMS)
def test_every_value_is_there(title: str) -> None:
    assert title in SECTIONS, f"docs/protocol.md has no section '{title}'"
    values = ", ".join(f"`{one.value}`" for one in ENUMS[title])
    assert f"One of {values}" in SECTIONS[title]


@pytest.mark.parametrize("request_type", m.ANSWERS, ids=lambda kind: kind.__name__)
def test_every_request_says_what_ok_carries(request_type: type) -> None:
    answer = page.type_name(msgspec.inspect.type_info(m.ANSWERS[request_type]))
    carries = re.search(
        r"^OK carries: (.+?)(,.*|\.)?$", SECTIONS[page.title_of(request_type)], re.M
    )
    assert carries is not None
    assert carries[1] == answer


def test_nothing_is_described_that_is_not_there() -> None:
    described = {title for title, text in SECTIONS.items() if "| field |" in text}
    assert described == set(STRUCTS)


@pytest.mark.parametrize(
    ("name", "frames", "meaning"),
    list(page.examples(TEXT)),
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_every_example_is_what_goes_over_the_wire(
    name: str, frames: list[bytes], meaning: object
) -> None:
    assert frames == EXAMPLES[name]
    assert page.readable(msgspec.msgpack.decode(frames[2])) == meaning


def test_every_example_is_there() -> None:
    assert {name for name, _, _ in page.examples(TEXT)} == set(EXAMPLES)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, anchor = target.partition("#")
        there = page.PAGE.parent / path if path else page.PAGE
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there.read_text()), target


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
