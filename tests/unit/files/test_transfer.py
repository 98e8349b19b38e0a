"""Pushing and pulling through a gateway: nothing twice, whole after a cut, bounded."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.files.cutting import cutting_proxy
from tests.unit.files.gateways import gateway_at

from longshore.client.ids import fresh_id
from longshore.errors import Damaged, LongshoreError, Unavailable
from longshore.files.beneath import opened_folder
from longshore.files.cache import BlobCache
from longshore.files.collect import Bounds, collect
from longshore.files.documents import PublishRequest, ShownVersion
from longshore.files.pace import BURST_S, Pace
from longshore.files.patterns import Patterns
from longshore.files.pulling import Pulling
from longshore.files.pushing import Pushed, Pushing
from longshore.files.transfer import FileClient, Terms

BOUNDS = Bounds(10**9, 10_000)


async def push(
    client: FileClient, folder: Path, name: str = "data", upload: UUID | None = None
) -> tuple[Pushed, ShownVersion]:
    upload = upload or fresh_id()
    with opened_folder(folder) as opened:
        manifest = collect(opened, Patterns(), BOUNDS)
        pushed = await Pushing(client, 4, upload).push(opened, manifest, lambda done, total: None)
    request = PublishRequest(pushed.manifest.hex(), pushed.size, upload)
    return pushed, await client.publish(name, request)


async def pull(client: FileClient, version: ShownVersion, cache: Path, into: Path) -> None:
    os.mkdir(into)
    pulling = Pulling(client, BlobCache(cache, 10**9), 4)
    manifest = await pulling.manifest(bytes.fromhex(version.manifest), BOUNDS)
    with opened_folder(into) as opened:
        await pulling.put(opened, manifest.files, lambda done, total: None)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "small.txt").write_text("small")
    (folder / "sub/same.txt").write_text("small")
    (folder / "sub/deep/large").write_bytes(os.urandom(3_000_000))
    (folder / "empty").touch()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


async def test_what_is_pushed_is_pulled(data: Path, tmp_path: Path) -> None:
    async with gateway_at(tmp_path / "files") as gateway, FileClient([gateway.url]) as client:
        _, version = await push(client, data)
        await pull(client, version, tmp_path / "cache", tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(data)
    assert os.access(tmp_path / "copy/run.sh", os.X_OK)
    assert (version.version, version.files) == (1, 5)


async def test_a_second_push_and_a_second_pull_move_no_bytes(data: Path, tmp_path: Path) -> None:
    async with gateway_at(tmp_path / "files") as gateway:
        async with FileClient([gateway.url]) as client:
            first, version = await push(client, data)
            await pull(client, version, tmp_path / "cache", tmp_path / "copy")
            assert first.sent_bytes > 3_000_000
            assert client.received_bytes > 3_000_000
        async with FileClient([gateway.url]) as client:
            second, version = await push(client, data)
            await pull(client, version, tmp_path / "cache", tmp_path / "again")
            assert (second.sent_bytes, client.received_bytes) == (0, 0)
    assert tree(tmp_path / "again") == tree(data)


async def test_a_blob_that_is_damaged_at_the_gateway_is_never_taken_for_a_good_one(
    data: Path, tmp_path: Path
) -> None:
    async with gateway_at(tmp_path / "files") as gateway, FileClient([gateway.url]) as client:
        _, version = await push(client, data)
        large = next(p for p in (tmp_path / "files").glob("??/??/*") if p.stat().st_size > 10**6)
        large.chmod(0o600)
        with large.open("r+b") as file:
            file.write(b"!")
        with pytest.raises(BaseExceptionGroup) as caught:
            await pull(client, version, tmp_path / "cache", tmp_path / "copy")
        assert caught.group_contains(Damaged)
    assert not (tmp_path / "copy/sub/deep/large").exists()


async def test_a_damaged_blob_in_the_cache_is_fetched_again(data: Path, tmp_path: Path) -> None:
    async with gateway_at(tmp_path / "files") as gateway, FileClient([gateway.url]) as client:
        _, version = await push(client, data)
        await pull(client, version, tmp_path / "cache", tmp_path / "copy")
        for blob in (tmp_path / "cache").glob("??/*"):
            if blob.stat().st_size > 10**6:
                blob.chmod(0o600)
                blob.write_bytes(b"changed by somebody")
        await pull(client, version, tmp_path / "cache", tmp_path / "again")
    assert tree(tmp_path / "again") == tree(data)


async def test_a_version_larger_than_allowed_is_refused(data: Path, tmp_path: Path) -> None:
    async with (
        gateway_at(tmp_path / "files", max_fileset_bytes=1_000) as gateway,
        FileClient([gateway.url]) as client,
    ):
        with pytest.raises(LongshoreError, match="max_fileset_bytes"):
            await push(client, data)


async def test_bytes_go_no_faster_than_the_limit() -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    pace = Pace(1_000_000, lambda: now, sleep)
    for _ in range(40):
        await pace.take(100_000)
    assert now == pytest.approx(4.0 - BURST_S)


async def test_a_push_and_a_pull_are_held_to_the_limit_together(data: Path, tmp_path: Path) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async with gateway_at(tmp_path / "files") as gateway, FileClient([gateway.url]) as client:
        # The clock stands still but for these waits: what it shows, the limit alone has cost.
        client._pace = Pace(1_000_000, lambda: now, sleep)
        _, version = await push(client, data)
        pushed_at = now
        await pull(client.with_ticket("an attempt"), version, tmp_path / "cache", tmp_path / "copy")
    assert 3.0 - BURST_S <= pushed_at < 3.5
    assert 6.0 - BURST_S <= now < 7.0
    assert tree(tmp_path / "copy") == tree(data)


async def test_without_a_limit_nothing_waits() -> None:
    async def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    await Pace(0, lambda: 0.0, sleep).take(10**12)


@pytest.mark.parametrize("most_bytes", [1_000_000, 2_500_000])
async def test_an_upload_and_a_download_go_on_after_cuts(
    data: Path, tmp_path: Path, most_bytes: int
) -> None:
    async with (
        gateway_at(tmp_path / "files") as gateway,
        cutting_proxy(gateway.url, most_bytes) as proxy,
        FileClient([proxy.url]) as client,
    ):
        _, version = await push(client, data)
        cuts = proxy.cuts
        await pull(client, version, tmp_path / "cache", tmp_path / "copy")
        assert cuts > 0
        assert proxy.cuts > cuts
        assert client.received_bytes < 3_100_000, "what came before a cut is not fetched again"
        assert proxy.sent_bytes < 2 * 3_100_000 + 4 * most_bytes
    assert tree(tmp_path / "copy") == tree(data)


async def test_a_gateway_that_is_gone_is_asked_again_until_another_answers(
    data: Path, tmp_path: Path
) -> None:
    async with (
        gateway_at(tmp_path / "files") as gateway,
        FileClient(["http://127.0.0.1:1", gateway.url]) as client,
    ):
        _, version = await push(client, data)
    assert version.files == 5


async def test_who_has_little_patience_hears_why_nobody_answers() -> None:
    terms = Terms(patience_s=0.01)
    async with FileClient(["http://127.0.0.1:1"], terms=terms) as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await client.filesets()


async def test_a_hostile_archive_is_just_a_file(tmp_path: Path) -> None:
    """Nothing unpacks it: neither its names nor how large it says to be matter."""
    data = tmp_path / "data"
    data.mkdir()
    with tarfile.open(data / "evil.tar", "w") as archive:
        for name in ("../../evil", str(tmp_path / "evil")):
            archive.addfile(tarfile.TarInfo(name))
    (data / "bomb.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    async with gateway_at(tmp_path / "files") as gateway, FileClient([gateway.url]) as client:
        _, version = await push(client, data)
        await pull(client, version, tmp_path / "cache", tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(data)
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path.parent / "evil").exists()


async def test_small_files_go_many_with_each_request(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(1_200):
        (folder / f"{number}").write_text(f"{number}")
    async with gateway_at(tmp_path / "files") as gateway, FileClient([gateway.url]) as client:
        _, version = await push(client, folder)
        assert gateway.ledger.notes <= 5, "for 1,200 blobs and a manifest"
        await pull(client, version, tmp_path / "cache", tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(folder)
