"""Files in S3, by its protocol: moto's server answers it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.files.buckets import bucket_of_its_own
from tests.unit.files.gateways import FileGateway
from tests.unit.files.test_transfer import pull, push, tree

from longshore.errors import NotFound, Unavailable
from longshore.files.blobs import Blobs
from longshore.files.places import RemotePlace, place_of
from longshore.files.transfer import FileClient

DATA = os.urandom(7_000_000)
SHA256 = hashlib.sha256(DATA).digest()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of its own, while the tests run."""
    with bucket_of_its_own() as url:
        yield url


@pytest.fixture
def place(bucket: str, tmp_path: Path) -> RemotePlace:
    made = place_of(f"{bucket}/{tmp_path.name}", tmp_path / "staging")
    assert isinstance(made, RemotePlace)
    return made


def test_a_blob_is_stored_read_in_parts_and_removed(place: RemotePlace) -> None:
    blobs = Blobs(place)
    upload = blobs.upload("me", SHA256, len(DATA), 1)
    upload.write(DATA[:3_000_000])
    upload.close()
    upload = blobs.upload("me", SHA256, len(DATA), 1)
    upload.write(DATA[upload.offset :])
    upload.finish()
    upload.close()
    assert blobs.size(SHA256, 1) == len(DATA)
    assert blobs.whole(SHA256, 1, len(DATA)) == DATA
    assert (
        b"".join(blobs.read(SHA256, 1, len(DATA), 6_000_000, 6_000_100)) == DATA[6_000_000:][:100]
    )
    blobs.remove(SHA256, 1)
    blobs.remove(SHA256, 1)
    assert blobs.size(SHA256, 1) is None
    with pytest.raises(NotFound):
        blobs.whole(SHA256, 1, len(DATA))
    assert [*place.staging.iterdir()] == [], "nothing of the upload is left on this machine"


def test_a_bucket_keeps_the_id_that_came_first(place: RemotePlace) -> None:
    assert place.id("one") == "one"
    assert place.id("two") == "one"


def test_a_bucket_that_is_not_there_is_a_clear_error(bucket: str, tmp_path: Path) -> None:
    place = place_of("s3://no-such-bucket/way", tmp_path / "staging")
    with pytest.raises((NotFound, Unavailable), match="no-such-bucket"):
        place.id("one")


async def test_a_gateway_keeps_its_files_in_s3(place: RemotePlace, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "large").write_bytes(DATA)
    for number in range(20):
        (folder / "sub" / str(number)).write_text(str(number))
    async with (
        FileGateway(place).serving() as gateway,
        FileClient([gateway.url]) as client,
    ):
        _, version = await push(client, folder)
        await pull(client, version, tmp_path / "cache", tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(folder)
