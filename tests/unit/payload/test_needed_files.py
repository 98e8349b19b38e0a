"""Which files a job needs, by its kind and its arguments."""

from __future__ import annotations

from uuid import UUID

import pytest

from longshore.model.program import COMMAND_KIND
from longshore.model.worker import FilesAtHand, KindInfo, SessionKey
from longshore.payload.needed_files import (
    MAX_ARGS_BYTES,
    OF_THE_GROUP,
    Needing,
    files_of,
    inputs_of,
    wishes,
)
from longshore.payload.values import pack

JOB, PARENT = UUID(int=9), UUID(int=8)
A, B = SessionKey(UUID(int=1), 1), SessionKey(UUID(int=2), 1)
KINDS = {
    COMMAND_KIND: KindInfo(files=True),
    "resize": KindInfo(files=True, inputs=("photos@3", "{album}", ""), outputs=("small-{album}",)),
    "touch": KindInfo(files=True),
}


def job(kind: str, **args: object) -> Needing:
    return Needing(JOB, kind, pack(args, "arguments"))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("photos", ["photos"]),
        (["photos@3", {"fileset": "a", "version": 2}], ["photos@3", "a@2"]),
        ([{"fileset": "a", "patterns": ["x"], "path": "in"}], ["a"]),
        ([{"from": "make"}, {"from": "make", "fileset": "a"}], [OF_THE_GROUP, OF_THE_GROUP]),
        ([], []),
        (7, []),
        ([7], []),
        (["x" * 10_000], []),
        (["x"] * 5_000, ["x"] * 100),
    ],
)
def test_inputs_of_a_program_that_its_submitter_describes(given: object, found: list[str]) -> None:
    assert inputs_of(job(COMMAND_KIND, argv=["ls"], inputs=given), KINDS) == found


def test_inputs_of_a_program_that_an_app_declares() -> None:
    assert inputs_of(job("resize", album="alps"), KINDS) == ["photos@3", "alps", OF_THE_GROUP]
    assert inputs_of(job("resize"), KINDS) == ["photos@3", OF_THE_GROUP], "it is not known which"


def test_a_worker_has_at_hand_what_its_job_reads_and_makes() -> None:
    assert files_of(job("resize", album="alps"), KINDS) == [JOB, "photos@3", "alps", "small-alps"]
    made = job(COMMAND_KIND, argv=["ls"], outputs=["tables"])
    assert files_of(made, KINDS) == [JOB, "tables"]


def test_a_job_without_files_needs_none() -> None:
    assert files_of(job(COMMAND_KIND, argv=["ls"]), KINDS) == []
    assert files_of(job("touch"), KINDS) == []
    assert files_of(job("fetch", inputs=["photos"]), KINDS) == []


def test_arguments_that_cannot_be_read_need_nothing() -> None:
    for args in (b"\xc1inputs", pack(["inputs"], "a list"), b"inputs" * MAX_ARGS_BYTES):
        assert inputs_of(Needing(JOB, COMMAND_KIND, args), KINDS) == []
        assert inputs_of(Needing(JOB, "resize", args), KINDS) in ([], ["photos@3", OF_THE_GROUP])


def test_a_job_wishes_for_the_worker_that_has_its_inputs_or_those_of_its_group() -> None:
    at_hand = FilesAtHand({"photos": [B.worker], PARENT: [A.worker]}, KINDS)
    jobs = [
        job(COMMAND_KIND, inputs="photos"),
        job(COMMAND_KIND, inputs=[{"from": "make"}]),
        job(COMMAND_KIND, inputs="other"),
        job("fetch"),
    ]
    assert wishes(at_hand, jobs, [A, B], lambda _: [PARENT]) == [B.worker, A.worker, None, None]
    assert wishes(at_hand, jobs, [A], lambda _: []) == [None] * 4
