"""What a worker does with inputs and outputs, and how it says what went wrong."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.unit.files.gateways import FileGateway, gateway_at

from longshore.files.collect import Bounds
from longshore.files.transfer import Terms
from longshore.files.worker_files import FileTerms, WorkerFiles
from longshore.model.fileset import NewVersion
from longshore.model.program import Input, Outcome, Output
from longshore.ports.files import FilesFailed, Saving

TICKET = "a-ticket"


def terms(url: str, folder: Path, **changes: Any) -> FileTerms:
    usual = FileTerms(
        urls=(url,),
        cache=folder / "cache",
        cache_bytes=10**8,
        bounds=Bounds(10**8, 1_000),
        timeout_s=20.0,
        transfer=Terms(slots=4),
    )
    return structs.replace(usual, **changes)


@asynccontextmanager
async def worker(tmp_path: Path, **changes: Any) -> AsyncIterator[tuple[WorkerFiles, FileGateway]]:
    async with (
        gateway_at(tmp_path / "files") as gateway,
        WorkerFiles(terms(gateway.url, tmp_path, **changes)) as files,
    ):
        yield files, gateway


async def take(files: WorkerFiles, made: Output, folder: Path) -> NewVersion:
    return await files.take(TICKET, made, folder, lambda done, total: None)


async def bring(files: WorkerFiles, wanted: Input, into: Path) -> None:
    await files.bring(TICKET, wanted, into, lambda done, total: None)


def publish(gateway: FileGateway, version: NewVersion) -> None:
    gateway.ledger.add(version.fileset, version.manifest, version.files, version.total_bytes)


def fill(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


async def test_outputs_of_one_attempt_are_inputs_of_the_next(tmp_path: Path) -> None:
    made = fill(tmp_path / "one", out__a="1", out__deep__b="2", scratch="not taken")
    into = fill(tmp_path / "two", own="file")
    async with worker(tmp_path) as (files, gateway):
        version = await take(files, Output("data", ("**",), "out"), made)
        assert (version.files, version.total_bytes) == (2, 2)
        publish(gateway, version)
        await bring(files, Input("data", patterns=("**/b",), path="in/here"), into)
    assert (into / "in/here/deep/b").read_text() == "2"
    assert not (into / "in/here/a").exists()


async def test_a_job_cannot_change_an_input_for_others(tmp_path: Path) -> None:
    made = fill(tmp_path / "one", a="right")
    first, second = fill(tmp_path / "first", own="1"), fill(tmp_path / "second", own="1")
    async with worker(tmp_path) as (files, gateway):
        publish(gateway, await take(files, Output("data"), made))
        await bring(files, Input("data"), first)
        (first / "a").write_text("wrong")
        await bring(files, Input("data"), second)
    assert (second / "a").read_text() == "right"


async def test_what_a_gateway_on_this_machine_has_is_copied_without_it(tmp_path: Path) -> None:
    made, into = fill(tmp_path / "one", a="1" * 100_000, b="2"), fill(tmp_path / "into", own="1")
    async with worker(tmp_path, near=tmp_path / "files") as (files, gateway):
        publish(gateway, await take(files, Output("data"), made))
        await bring(files, Input("data"), into)
        assert 0 < files._client.received_bytes < 1_000, "the manifest came, and no file"
    assert (into / "a").read_text() == "1" * 100_000
    assert (into / "b").read_text() == "2"


async def test_what_lies_damaged_on_this_machine_comes_from_the_gateway(tmp_path: Path) -> None:
    made, into = fill(tmp_path / "one", a="1" * 100_000, b="2"), fill(tmp_path / "into", own="1")
    async with worker(tmp_path, near=tmp_path / "near") as (files, gateway):
        publish(gateway, await take(files, Output("data"), made))
        shutil.copytree(tmp_path / "files", tmp_path / "near")
        for blob in (tmp_path / "near").glob("??/??/*"):
            blob.chmod(0o600)
            blob.write_bytes(blob.read_bytes()[:-1] + b"!")
        await bring(files, Input("data"), into)
    assert (into / "a").read_text() == "1" * 100_000
    assert (into / "b").read_text() == "2"


async def test_what_a_job_made_here_is_in_the_cache_for_the_next(tmp_path: Path) -> None:
    made, into = fill(tmp_path / "one", a="1" * 100_000, b="2"), fill(tmp_path / "into", own="1")
    (made / "a").chmod(0o755)
    async with worker(tmp_path) as (files, gateway):
        await take(files, Output("data"), made)
        # Taken twice, a file is what it was.
        publish(gateway, await take(files, Output("data"), made))
        await bring(files, Input("data"), into)
        assert 0 < files._client.received_bytes < 1_000, "the manifest came, and no file"
    assert (into / "a").read_text() == "1" * 100_000
    assert os.access(into / "a", os.X_OK)


async def test_checkpoint_is_put_back_where_it_lay_over_what_is_there(tmp_path: Path) -> None:
    first = fill(tmp_path / "one", state__step="2", data="mine", scratch="not saved")
    second = fill(tmp_path / "two", data="input", other="stays")
    patterns = ("state/**", "data")
    async with worker(tmp_path) as (files, _):
        assert await files.restore(TICKET, first, lambda done, total: None) is None
        kept = await files.save(TICKET, Saving(patterns, 1), first, lambda done, total: None)
        assert (kept.files, kept.total_bytes) == (2, 5)
        assert await files.restore(TICKET, second, lambda done, total: None) == 2
    found = {str(path.relative_to(second)) for path in second.rglob("*") if path.is_file()}
    assert found == {"state/step", "data", "other"}
    assert ((second / "data").read_text(), (second / "state/step").read_text()) == ("mine", "2")


async def test_checkpoint_without_its_files_names_them(tmp_path: Path) -> None:
    folder = fill(tmp_path / "one", other="1")
    async with worker(tmp_path) as (files, _):
        with pytest.raises(
            FilesFailed, match="the checkpoint: nothing matches 'state/\\*\\*'"
        ) as error:
            await files.save(TICKET, Saving(("state/**",), 1), folder, lambda done, total: None)
    assert error.value.outcome is Outcome.OUTPUT_MISSING


async def test_a_missing_output_says_what_was_there(tmp_path: Path) -> None:
    made = fill(tmp_path / "one", result__txt="1")
    async with worker(tmp_path) as (files, _):
        with pytest.raises(FilesFailed, match=r"'\*\.csv'; there are 'result/'") as caught:
            await take(files, Output("data", ("*.csv",)), made)
        assert caught.value.outcome is Outcome.OUTPUT_MISSING
        with pytest.raises(FilesFailed, match="no folder 'nowhere'") as caught:
            await take(files, Output("data", path="nowhere"), made)
        assert caught.value.outcome is Outcome.OUTPUT_MISSING


async def test_a_hostile_output_is_refused(tmp_path: Path) -> None:
    made = fill(tmp_path / "one", a="1")
    (made / "evil").symlink_to("/etc")
    async with worker(tmp_path) as (files, _):
        for output in (Output("data"), Output("data", path="evil"), Output("data", path="../one")):
            with pytest.raises(FilesFailed) as caught:
                await take(files, output, made)
            assert caught.value.outcome is Outcome.OUTPUT_REFUSED


async def test_a_folder_that_its_job_has_replaced_by_a_link_is_not_taken(tmp_path: Path) -> None:
    secret = fill(tmp_path / "secret", key="1")
    (tmp_path / "work").symlink_to(secret)
    async with worker(tmp_path) as (files, gateway):
        with pytest.raises(FilesFailed, match="its folder is gone") as caught:
            await take(files, Output("data"), tmp_path / "work")
        assert caught.value.outcome is Outcome.OUTPUT_MISSING
        assert gateway.ledger.stored == {}


async def test_a_missing_input_is_named(tmp_path: Path) -> None:
    made, into = fill(tmp_path / "one", a="1"), fill(tmp_path / "two", own="1")
    async with worker(tmp_path) as (files, gateway):
        with pytest.raises(FilesFailed, match="there is no fileset data") as caught:
            await bring(files, Input("data"), into)
        assert caught.value.outcome is Outcome.INPUT_MISSING
        publish(gateway, await take(files, Output("data"), made))
        with pytest.raises(
            FilesFailed, match=r"nothing matches '\*\.csv'; there are 'a'"
        ) as caught:
            await bring(files, Input("data", patterns=("*.csv",)), into)
        assert caught.value.outcome is Outcome.INPUT_MISSING


async def test_an_input_never_leaves_the_folder_of_its_attempt(tmp_path: Path) -> None:
    made, into = fill(tmp_path / "one", a="1"), fill(tmp_path / "two", own="1")
    (into / "link").symlink_to(tmp_path)
    async with worker(tmp_path) as (files, gateway):
        publish(gateway, await take(files, Output("data"), made))
        for path in ("../one", "/tmp", "link"):
            with pytest.raises(FilesFailed) as caught:
                await bring(files, Input("data", path=path), into)
            assert caught.value.outcome is Outcome.NOT_STARTED
    assert not (tmp_path / "a").exists()


async def test_a_gateway_that_never_answers_is_a_failed_transfer(tmp_path: Path) -> None:
    into = fill(tmp_path / "two", own="1")
    async with WorkerFiles(terms("http://127.0.0.1:1", tmp_path, timeout_s=0.3)) as files:
        with pytest.raises(FilesFailed, match=r"transfer_timeout_s.*127\.0\.0\.1:1") as caught:
            await bring(files, Input("data"), into)
    assert caught.value.outcome is Outcome.TRANSFER_FAILED


async def test_files_that_do_not_fit_on_the_disk_are_not_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, into = fill(tmp_path / "one", a="1" * 3_000), fill(tmp_path / "two", own="1")
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 1, 1, 1, 0, 255))
    async with worker(tmp_path) as (files, gateway):
        publish(gateway, await take(files, Output("data"), made))
        monkeypatch.setattr(os, "fstatvfs", lambda folder: full)
        with pytest.raises(FilesFailed, match="room for 0") as caught:
            await bring(files, Input("data"), into)
        assert caught.value.outcome is Outcome.DISK_FULL


async def test_a_cancelled_collection_ends_at_once(tmp_path: Path) -> None:
    made = tmp_path / "one"
    made.mkdir()
    os.truncate(os.open(made / "holes", os.O_CREAT | os.O_WRONLY), 1 << 40)
    async with worker(tmp_path, bounds=Bounds(1 << 50, 10)) as (files, _):
        taking = asyncio.ensure_future(take(files, Output("data"), made))
        await asyncio.wait([taking], timeout=0.2)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
