"""Files in S3, on real processes: pushed, read and made by a job, pulled, and removed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import s3fs

import longshore
from longshore.cli.main import execute
from longshore.model.program import COMMAND_KIND
from longshore.testing.processes import Process, await_true, settings
from tests.system.conftest import ANY, QUICK
from tests.unit.files.buckets import bucket_of_its_own

SOON = {"filesets_gc_s": 0.5, "blob_unused_s": 10.0, "blob_doomed_s": 0.001}
"""An upload may stand still for ten seconds."""
SORT = {
    "argv": ["sh", "-c", "mkdir out; sort in/*/words > out/sorted"],
    "inputs": [{"fileset": "words", "path": "in"}],
    "outputs": [{"fileset": "sorted", "path": "out"}],
}


@pytest.fixture
def place() -> Iterator[str]:
    with bucket_of_its_own() as bucket:
        yield f"{bucket}/harbour"


@pytest.fixture
def up(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    words = ["--exec", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    given = settings(files=place, engine="off", **QUICK, **SOON)
    with Process("up", *words, *given, cwd=tmp_path, log=tmp_path / "up.log") as up:
        yield up.ready()


def filesets(up: Process, *words: str) -> Any:
    """What a command answers, as JSON."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert execute(["filesets", *words, "--connect", up.facts["http"], "--json"]) == 0
    return json.loads(said.getvalue())


def objects(place: str) -> set[str]:
    """The blobs in the bucket."""
    fresh = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    return {one for one in fresh.find(place) if re.search("[0-9a-f]{64}", one)}


def test_files_go_to_s3_and_back_and_what_nobody_needs_is_removed(
    up: Process, place: str, tmp_path: Path
) -> None:
    made = tmp_path / "words" / "deep"
    made.mkdir(parents=True)
    (made / "words").write_text("harbour\nanchor\n")
    assert filesets(up, "push", "words", "words")["version"] == 1
    pushed = objects(place)
    assert len(pushed) == 2, "the manifest and the file"
    with longshore.App("client", connect=up.facts["frontend"]) as app:
        app.submit_by_name(COMMAND_KIND, SORT).result(60)
    filesets(up, "pull", "sorted", "copy")
    assert (tmp_path / "copy/sorted").read_text() == "anchor\nharbour\n"
    assert len(objects(place)) == 4
    assert filesets(up, "rm", "sorted@1")["removed"] == ["sorted@1"]

    def is_removed() -> bool:
        filesets(up, "gc")
        return objects(place) == pushed

    await_true(is_removed, "the bytes of the version that was removed are gone", timeout_s=60)
    filesets(up, "pull", "words", "again")
    assert (tmp_path / "again/deep/words").read_bytes() == (made / "words").read_bytes()
