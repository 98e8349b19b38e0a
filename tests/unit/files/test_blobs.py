"""Blobs: stored once and whole, checked on the way in and out, resumed after a cut."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from pathlib import Path
from typing import IO

import pytest

from longshore.errors import Damaged, DiskFull, InvalidInput, NotFound, UploadBusy
from longshore.files.blobs import Blobs, blob_name, parse_sha256
from longshore.files.places import FolderPlace, RemotePlace, place_of

DATA = b"some bytes " * 100_000
SHA256 = hashlib.sha256(DATA).digest()
ME = "holder"


@pytest.fixture(params=["folder", "fsspec"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return Blobs(FolderPlace(tmp_path / "files"))
    return Blobs(RemotePlace(f"memory://{tmp_path}/files", tmp_path / "staging"))


def store(blobs: Blobs, data: bytes = DATA, generation: int = 1) -> bytes:
    sha256 = hashlib.sha256(data).digest()
    upload = blobs.upload(ME, sha256, len(data), generation)
    upload.write(data)
    upload.finish()
    upload.close()
    return sha256


def test_what_is_stored_is_read_back(blobs: Blobs) -> None:
    store(blobs)
    assert blobs.size(SHA256, 1) == len(DATA)
    assert b"".join(blobs.read(SHA256, 1, len(DATA))) == DATA


def test_a_part_of_a_blob_can_be_read(blobs: Blobs) -> None:
    store(blobs)
    assert b"".join(blobs.read(SHA256, 1, len(DATA), 700_000, 900_000)) == DATA[700_000:900_000]


def test_an_empty_file_is_a_blob(blobs: Blobs) -> None:
    sha256 = store(blobs, b"")
    assert blobs.whole(sha256, 1, 0) == b""


def test_generations_are_apart(blobs: Blobs) -> None:
    store(blobs, generation=1)
    store(blobs, generation=2)
    blobs.remove(SHA256, 1)
    blobs.remove(SHA256, 1)
    assert blobs.size(SHA256, 1) is None
    assert blobs.whole(SHA256, 2, len(DATA)) == DATA


def test_a_blob_that_is_not_there_is_not_found(blobs: Blobs) -> None:
    with pytest.raises(NotFound):
        blobs.whole(SHA256, 1, 1)


def test_an_upload_goes_on_after_a_cut(blobs: Blobs) -> None:
    upload = blobs.upload(ME, SHA256, len(DATA), 1)
    upload.write(DATA[:400_000])
    upload.close()
    assert blobs.offset(ME, SHA256, 1) == 400_000
    upload = blobs.upload(ME, SHA256, len(DATA), 1)
    assert upload.offset == 400_000
    upload.write(DATA[400_000:])
    assert upload.is_whole
    upload.finish()
    upload.close()
    assert blobs.whole(SHA256, 1, len(DATA)) == DATA
    assert blobs.offset(ME, SHA256, 1) == 0


def test_two_requests_never_write_one_upload(blobs: Blobs) -> None:
    upload = blobs.upload(ME, SHA256, len(DATA), 1)
    with pytest.raises(UploadBusy):
        blobs.upload(ME, SHA256, len(DATA), 1)
    blobs.upload("another", SHA256, len(DATA), 1).close()
    upload.close()
    blobs.upload(ME, SHA256, len(DATA), 1).close()


def test_a_request_that_opened_an_upload_before_it_was_finished_does_not_get_the_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request makes a blob of the file between its opening and its lock."""
    blobs = Blobs(FolderPlace(tmp_path))
    first = blobs.upload(ME, SHA256, len(DATA), 1)
    first.write(DATA)
    lock = fcntl.flock

    def finish_then_lock(file: IO[bytes], how: int) -> None:
        if blobs.size(SHA256, 1) is None:
            first.finish()
            first.close()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", finish_then_lock)
    second = blobs.upload(ME, SHA256, 5, 1)
    second.write(b"other")
    second.close()
    assert blobs.whole(SHA256, 1, len(DATA)) == DATA


def test_bytes_of_another_hash_are_refused_and_forgotten(blobs: Blobs) -> None:
    upload = blobs.upload(ME, SHA256, 5, 1)
    upload.write(b"other")
    with pytest.raises(InvalidInput, match="not those of"):
        upload.finish()
    upload.close()
    assert blobs.offset(ME, SHA256, 1) == 0
    assert blobs.size(SHA256, 1) is None


def test_more_bytes_than_announced_are_refused(blobs: Blobs) -> None:
    upload = blobs.upload(ME, SHA256, 5, 1)
    with pytest.raises(InvalidInput, match="more bytes"):
        upload.write(b"too many")
    upload.close()


@pytest.mark.parametrize("change", ["flip", "cut"])
def test_a_damaged_blob_is_noticed_before_its_last_chunk(tmp_path: Path, change: str) -> None:
    blobs = Blobs(FolderPlace(tmp_path))
    store(blobs)
    path = tmp_path / blob_name(SHA256, 1)
    path.chmod(0o600)
    path.write_bytes(b"X" + DATA[1:] if change == "flip" else DATA[:-1])
    came: list[bytes] = []
    with pytest.raises(Damaged):
        came.extend(blobs.read(SHA256, 1, len(DATA)))
    assert sum(map(len, came)) < len(DATA)


def test_uploads_that_nobody_goes_on_with_are_dropped(blobs: Blobs) -> None:
    upload = blobs.upload(ME, SHA256, len(DATA), 1)
    upload.write(b"some")
    upload.close()
    assert blobs.drop_uploads(3_600) == 0
    assert blobs.drop_uploads(3_600, now=lambda: 2e10) == 1
    assert blobs.offset(ME, SHA256, 1) == 0


def test_a_full_disk_is_a_clear_error() -> None:
    blobs = Blobs(FolderPlace(Path("/dev/shm") / f"longshore-full-{os.getpid()}"))
    upload = blobs.upload(ME, SHA256, len(DATA), 1)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, upload._file.fileno())
        with pytest.raises(DiskFull, match="no room is left on the disk"):
            upload.write(b"x")
        assert list(blobs.place.staging.iterdir()) == [], "it leaves its room to others"
    finally:
        os.close(full)
        upload.close()
        blobs.drop_uploads(-1)
        blobs.place.staging.rmdir()
        blobs.place.staging.parent.rmdir()


def test_a_pack_for_which_the_disk_has_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, write = Blobs(FolderPlace(tmp_path)), Path.write_bytes

    def fill(path: Path, data: bytes) -> int:
        write(path, data)
        if data == b"two":
            raise OSError(errno.ENOSPC, "full")
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", fill)
    some = [(hashlib.sha256(data).digest(), 1, data) for data in (b"one", b"two", b"three")]
    with pytest.raises(DiskFull):
        blobs.store_many(ME, some)
    assert list(blobs.place.staging.iterdir()) == []
    blobs.store_many(ME, some[:1])
    assert blobs.whole(some[0][0], 1, 3) == b"one"


def test_a_place_keeps_the_id_that_came_first(tmp_path: Path) -> None:
    assert FolderPlace(tmp_path).id("one") == "one"
    assert FolderPlace(tmp_path).id("two") == "one"
    assert FolderPlace(tmp_path / "other").id("two") == "two"


def test_an_unknown_kind_of_place_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name a folder"):
        place_of("nonsense://bucket", tmp_path)


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, "A" * 64, "../" + "a" * 61, "a" * 65])
def test_only_a_hash_is_a_hash(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_sha256(text)
