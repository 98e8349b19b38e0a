"""Versions that ends publish: which can be, and what becomes of those that are not stored."""

from __future__ import annotations

import pytest

from longshore.core.publishing import MAX_VERSIONS, check_fileset, check_versions, without_outputs
from longshore.errors import InvalidInput
from longshore.model.ends import Failed, Succeeded
from longshore.model.fileset import NewVersion
from longshore.model.job import JobError, Reason
from longshore.testing.builders import new_id

HASH = bytes(32)
BROKEN = JobError(Reason.EXITED, "exited with code 1")


@pytest.mark.parametrize("name", ["results", "a/b/c", "train 2024", "naïve", "x" * 200])
def test_names_that_can_be(name: str) -> None:
    check_fileset(name)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 201, "../a", "a/../b", "/a", "a/", "a//b", ".", "a\\b", "a\nb", "a\0", " a", "a@3"],
)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="fileset"):
        check_fileset(name)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ([NewVersion("a", b"short", 1, 1)], "32 bytes"),
        ([NewVersion("a", HASH, -1, 1)], "more than can be"),
        ([NewVersion("a", HASH, 1, 2**60)], "more than can be"),
        ([NewVersion("a", HASH, 1, 1)] * 2, "two versions"),
        ([NewVersion(f"{n}", HASH, 1, 1) for n in range(MAX_VERSIONS + 1)], "allowed"),
    ],
)
def test_versions_that_cannot_be(versions: list[NewVersion], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_versions(versions)


def test_success_without_its_files_is_a_failure_that_names_them() -> None:
    worker = new_id()
    end = Succeeded(
        new_id(), 7, b"1", versions=(NewVersion("a", HASH, 1, 1),), worker=worker, ran_s=2.0
    )
    failed = without_outputs(end, ["a"])
    assert isinstance(failed, Failed)
    assert (failed.job, failed.token, failed.worker, failed.ran_s) == (end.job, 7, worker, 2.0)
    assert failed.error.reason is Reason.OUTPUT_MISSING
    assert "'a'" in failed.error.message
    assert failed.versions == ()


def test_failure_without_its_files_keeps_its_error() -> None:
    end = Failed(new_id(), 7, BROKEN, info="exit 1", versions=(NewVersion("a", HASH, 1, 1),))
    failed = without_outputs(end, ["a"])
    assert isinstance(failed, Failed)
    assert (failed.error, failed.versions) == (BROKEN, ())
    assert failed.info.startswith("exit 1; ")
